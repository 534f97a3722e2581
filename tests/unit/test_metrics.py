"""What the numbers mean: hand-computed cases, slow loops, scikit-learn beside it, and runs without truth."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, precision_recall_fscore_support
from sklearn.metrics import log_loss as sklearn_log_loss

from dpssl.label_model import covered as covered_rows
from dpssl.label_model import effective_lfs
from dpssl.metrics import (
    accuracy,
    annotation_metrics,
    coverage,
    expected_calibration_error,
    log_loss,
    majority_vote_accuracy,
    specialist_summary,
    vote_scores,
)

SHARED_VOTES = Path(__file__).parents[3] / "shared" / "data" / "votes"


def test_annotation_by_hand() -> None:
    soft_labels = np.array([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7], [0.9, 0.1]])
    covered = np.array([True, True, True, False])
    truth = np.array([0, 1, 1, 1])
    scores = annotation_metrics(soft_labels, covered, truth)
    # right, wrong, right and an empty row that counts 1/2; the classes get 2.5 and 1.5 of the four annotations
    assert scores["annotation_accuracy"] == pytest.approx(2.5 / 4)
    assert scores["annotation_macro_precision"] == pytest.approx((1 / 2.5 + 1.5 / 1.5) / 2)
    assert scores["annotation_macro_recall"] == pytest.approx((1 / 1 + 1.5 / 3) / 2)
    assert scores["annotation_macro_f1"] == pytest.approx((2 * 1 / (1 + 2.5) + 2 * 1.5 / (3 + 1.5)) / 2)
    assert scores["annotation_accuracy_covered"] == pytest.approx(2 / 3)
    assert scores["annotation_macro_precision_covered"] == pytest.approx((1 / 2 + 1) / 2)
    assert scores["annotation_macro_recall_covered"] == pytest.approx((1 + 1 / 2) / 2)
    assert scores["annotation_macro_f1_covered"] == pytest.approx(2 / 3)
    assert scores["coverage"] == 0.75
    assert scores["n_evaluated"] == 4
    assert scores["top_500_per_class"] == pytest.approx(2 / 3)  # all covered rows: no class has 500
    assert scores["per_class"][1] == pytest.approx(
        {
            "class": 1,
            "n": 3,
            "n_annotated": 1.0,
            "mean_confidence": 0.7,
            "precision": 1.0,
            "recall": 0.5,
            "f1": 2 / 3,
            "coverage": 2 / 3,
            "top_500_accuracy": 1.0,
        }
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 80))
def test_covered_rows_without_ties_score_as_in_scikit_learn(seed: int, n_classes: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    soft_labels = rng.dirichlet(np.ones(n_classes), n)
    truth = rng.integers(0, n_classes, n)
    scores = annotation_metrics(soft_labels, np.ones(n, dtype=bool), truth)
    predictions = soft_labels.argmax(axis=1)
    expected = precision_recall_fscore_support(
        truth, predictions, labels=np.unique(truth), average="macro", zero_division=0
    )
    assert scores["annotation_accuracy"] == pytest.approx(accuracy_score(truth, predictions))
    for name, value in zip(("precision", "recall", "f1"), expected[:3], strict=True):
        assert scores[f"annotation_macro_{name}"] == pytest.approx(value)
        assert scores[f"annotation_macro_{name}_covered"] == scores[f"annotation_macro_{name}"]
    assert scores["annotation_log_loss"] == pytest.approx(
        sklearn_log_loss(truth, soft_labels, labels=range(n_classes)), rel=1e-4
    )


def test_a_uniform_prior_on_empty_rows_never_becomes_class_0() -> None:
    soft_labels, truth = np.full((40, 4), 0.25), np.repeat(np.arange(4), 10)
    for covered in (np.zeros(40, dtype=bool), np.ones(40, dtype=bool)):
        scores = annotation_metrics(soft_labels, covered, truth)
        assert scores["annotation_accuracy"] == 0.25
        assert [row["recall"] for row in scores["per_class"]] == [0.25] * 4


def test_the_surest_500_are_counted_per_annotated_class() -> None:
    n = 1200
    confidence = np.linspace(0.51, 0.99, n)
    soft_labels = np.stack([confidence, 1 - confidence], axis=1)
    soft_labels = np.concatenate([soft_labels, soft_labels[:10, ::-1]])  # ten rows for the other class
    truth = np.concatenate([np.where(np.arange(n) >= n - 400, 0, 1), np.ones(10, dtype=int)])
    covered = np.ones(len(truth), dtype=bool)
    scores = annotation_metrics(soft_labels, covered, truth)
    assert scores["top_500_per_class"] == pytest.approx((400 + 10) / (500 + 10))
    assert [row["top_500_accuracy"] for row in scores["per_class"]] == pytest.approx([0.8, 1.0])
    covered[n - 400 : n] = False
    assert annotation_metrics(soft_labels, covered, truth)["top_500_per_class"] == pytest.approx(10 / 510)


def test_rows_of_unknown_truth_are_left_out_of_all_but_coverage() -> None:
    rng = np.random.default_rng(0)
    soft_labels, covered, truth = rng.dirichlet(np.ones(3), 60), rng.random(60) < 0.7, rng.integers(-1, 3, 60)
    known = truth >= 0
    scores = annotation_metrics(soft_labels, covered, truth)
    expected = annotation_metrics(soft_labels[known], covered[known], truth[known])
    of_all_rows = {"coverage": None, "per_class": None}
    assert {**scores, **of_all_rows} == {**expected, **of_all_rows}
    assert scores["coverage"] == covered.mean()
    for got, wanted in zip(scores["per_class"], expected["per_class"], strict=True):
        counts_of_all_rows = {"n_annotated": None, "mean_confidence": None}
        assert {**got, **counts_of_all_rows} == {**wanted, **counts_of_all_rows}
    assert sum(row["n_annotated"] for row in scores["per_class"]) == pytest.approx(covered.sum())


def test_without_truth_everything_but_coverage_is_none() -> None:
    unknown = np.full(5, -1)
    scores = annotation_metrics(np.full((5, 2), 0.5), np.array([True] * 4 + [False]), unknown)
    assert scores["coverage"] == 0.8
    assert scores["n_evaluated"] == 0
    measured = {name: value for name, value in scores.items() if name not in ("coverage", "n_evaluated", "per_class")}
    assert set(measured.values()) == {None}
    assert len(measured) == 11
    assert scores["per_class"][0]["f1"] is None
    assert accuracy(np.zeros(5, dtype=int), unknown) is None
    assert log_loss(np.full((5, 2), 0.5), unknown) is None
    assert expected_calibration_error(np.full((5, 2), 0.5), unknown) is None
    assert majority_vote_accuracy(np.zeros((5, 3), dtype=int), unknown, 2) is None
    assert coverage(np.empty(0, dtype=bool)) is None


def test_a_class_absent_from_the_truth_has_no_part_in_the_macro_mean() -> None:
    scores = annotation_metrics(np.eye(3)[[0, 0, 1, 2]], np.ones(4, dtype=bool), np.array([0, 0, 1, 1]))
    assert scores["annotation_macro_recall"] == pytest.approx((1 + 0.5) / 2)
    assert scores["per_class"][2]["precision"] is None
    assert scores["per_class"][2]["n_annotated"] == 1


def test_coverage_counts_rows_with_a_vote() -> None:
    votes = np.array([[-1, -1], [0, -1], [1, 0], [-1, 2]], dtype=np.int8)
    assert covered_rows(votes).tolist() == [False, True, True, True]
    assert coverage(covered_rows(votes)) == 0.75


def test_accuracy_leaves_unknown_rows_out() -> None:
    assert accuracy(np.array([0, 1, 1, 0]), np.array([0, 0, -1, 0])) == pytest.approx(2 / 3)


def test_log_loss_of_a_sure_mistake_is_finite() -> None:
    assert log_loss(np.array([[0.25, 0.75]]), np.array([0])) == pytest.approx(np.log(4))
    assert log_loss(np.array([[0.0, 1.0]]), np.array([0])) == pytest.approx(-np.log(np.finfo(np.float32).eps))


def test_calibration_error_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [1.0, 0.0]])
    truth = np.array([0, 1, 1, 0])
    # the bins of .9 (accuracy 1/2), .6 (accuracy 1) and 1.0 (accuracy 1)
    assert expected_calibration_error(probabilities, truth) == pytest.approx((2 * 0.4 + 1 * 0.4 + 1 * 0.0) / 4)
    # one bin: |3/4 - .85|
    assert expected_calibration_error(probabilities, truth, n_bins=1) == pytest.approx(0.1)


def majority_vote_accuracy_by_loop(votes: np.ndarray, truth: np.ndarray, n_classes: int) -> float:
    credits = []
    for row, label in zip(votes, truth, strict=True):
        counts = [sum(vote == candidate for vote in row) for candidate in range(n_classes)]
        tied = [candidate for candidate in range(n_classes) if counts[candidate] == max(counts)]
        credits.append((label in tied) / len(tied))
    return float(np.mean(credits))


def test_majority_vote_by_hand() -> None:
    votes = np.array([[0, 0, 1], [0, 1, -1], [-1, -1, -1], [1, 1, 2]], dtype=np.int8)
    truth = np.array([0, 1, 2, 0])
    assert majority_vote_accuracy(votes, truth, 3) == pytest.approx((1 + 1 / 2 + 1 / 3 + 0) / 4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(1, 6), st.integers(1, 20))
def test_majority_vote_equals_the_loop(seed: int, n_classes: int, n_lfs: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    votes, truth = rng.integers(-1, n_classes, (n, n_lfs)), rng.integers(0, n_classes, n)
    expected = majority_vote_accuracy_by_loop(votes, truth, n_classes)
    assert majority_vote_accuracy(votes, truth, n_classes) == pytest.approx(expected)


def copies(votes: np.ndarray) -> np.ndarray:
    return np.repeat(votes[:, :1], votes.shape[1], axis=1)


@pytest.mark.parametrize(("change", "expected"), [(copies, 1.0), (lambda votes: votes, 6.0)])
def test_copies_count_once_and_independent_lfs_fully(
    change: Callable[[np.ndarray], np.ndarray], expected: float
) -> None:
    votes = np.random.default_rng(0).integers(-1, 2, (20_000, 6))
    assert effective_lfs(change(votes), np.ones((6, 2), dtype=bool)) == pytest.approx([expected] * 2, rel=0.01)


def test_effective_lfs_is_the_participation_ratio_of_the_eigenvalues() -> None:
    rng = np.random.default_rng(1)
    shared = rng.integers(0, 3, (500, 1))
    votes = np.where(rng.random((500, 5)) < 0.6, shared, rng.integers(-1, 3, (500, 5)))
    specialties = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=bool)
    for label, effective in enumerate(effective_lfs(votes, specialties)):
        correlation = np.atleast_2d(np.corrcoef((votes[:, specialties[:, label]] == label).T))
        eigenvalues = np.linalg.eigvalsh(correlation)
        assert effective == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())


def test_silent_lfs_and_classes_nobody_took_have_no_effect() -> None:
    votes = np.array([[0, -1, 1], [1, -1, 0], [0, -1, 1]])
    specialties = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]], dtype=bool)
    assert effective_lfs(votes, specialties).tolist() == [1.0, 0.0, 0.0]
    assert effective_lfs(votes[:0], specialties).tolist() == [0.0, 0.0, 0.0]


def test_real_votes_without_diversity_amount_to_about_one_lf() -> None:
    path = SHARED_VOTES / "mcl_cifar10_40.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in ../shared/data/votes")
    with np.load(path, allow_pickle=False) as archive:
        votes, truth, specialties = archive["L"], archive["y"], archive["specialties"]
    effective = effective_lfs(votes, specialties)
    assert np.median(effective) == pytest.approx(1.05, abs=0.05)  # of ten specialists a class
    assert effective.max() < 1.5
    assert majority_vote_accuracy(votes, truth.astype(np.int64), 10) == pytest.approx(0.536, abs=0.001)


def test_specialists_are_summarised() -> None:
    specialties = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]], dtype=bool)
    assert specialist_summary(specialties) == {
        "specialists_per_class": [4, 1, 0],
        "n_empty_sets": 2,
        "n_duplicate_sets": 2,
    }
    assert specialist_summary(np.zeros((2, 3), dtype=bool)) == {
        "specialists_per_class": [0, 0, 0],
        "n_empty_sets": 2,
        "n_duplicate_sets": 0,
    }


def test_vote_scores_by_hand() -> None:
    """Three LFs; the last image's truth is unknown and counts nowhere."""
    votes = np.array([[0, -1, 0], [1, 1, -1], [-1, 1, 0], [0, 1, 1]])
    specialties = np.array([[True, True], [False, True], [True, False]])
    found = vote_scores(votes, np.array([0, 1, 0, -1]), specialties)
    # Of six votes on images of known truth, LF 1's on image 2 alone is wrong. Six times an LF may name the class of an
    # image, and LF 0 alone is silent once, on image 2.
    assert found == {"lf_precision": 5 / 6, "recall_inside_specialties": 5 / 6, "distinct_rows": 3}
    silent = vote_scores(np.full((2, 1), -1), np.array([0, 0]), np.array([[False]]))
    assert silent == {"lf_precision": None, "recall_inside_specialties": None, "distinct_rows": 1}

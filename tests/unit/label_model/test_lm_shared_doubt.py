"""The doubt that labeling functions share: by hand, its limits, and what it does to LFs that only repeat each other."""

from pathlib import Path

import numpy as np
import pytest

from dpssl.label_model import LabelModel
from dpssl.label_model.checks import check_confidence
from dpssl.label_model.shared_doubt import count_independent, shared_doubt, surest_rows, with_doubt

SILENT = -1


def test_by_hand() -> None:
    votes = np.array([[0, 0], [0, SILENT], [SILENT, SILENT], [SILENT, 1]])
    confidence = np.array([[0.9, 0.7], [0.9, 0.0], [0.0, 0.0], [0.6, 0.8]])
    doubt = [0.2, 0.1, 0.0, 0.3]  # the confidence 0 of an abstention is unknown
    assert shared_doubt(votes, confidence, 1.0, 1.0) == pytest.approx(doubt)
    assert shared_doubt(votes, confidence, 1.0, 2.0) == pytest.approx(np.square(doubt))
    assert shared_doubt(votes, confidence, 0.8, 1.0) == pytest.approx([0, 0, 0, 1 - 0.7 / 0.8])
    found = np.exp(with_doubt(np.log([[0.9, 0.1], [0.5, 0.5]]), np.array([0.2, 1.0])))
    np.testing.assert_allclose(found, [[0.82, 0.18], [0.5, 0.5]])


def test_without_doubt_nothing_changes() -> None:
    log_proba = np.array([[-1e-300, -700.0]])
    assert with_doubt(log_proba, np.zeros(1)).tolist() == log_proba.tolist()


def test_the_surest_rows_are_one_in_a_hundred() -> None:
    votes = np.zeros((1001, 3), dtype=int)
    confidence = np.repeat(np.linspace(0, 1, 1001)[:, None], 3, 1)
    assert surest_rows(votes, confidence, np.ones(1001)) == pytest.approx(0.99)
    assert surest_rows(votes[:0], confidence[:0], np.ones(0)) == 1


@pytest.mark.parametrize("n_rows", [1, 2, 7, 150, 1234])
def test_surest_rows_are_numpys_quantile_and_count_their_weights(n_rows: int) -> None:
    random = np.random.default_rng(n_rows)
    votes, confidence = np.zeros((n_rows, 2), dtype=int), np.repeat(random.random((n_rows, 1)), 2, 1)
    assert surest_rows(votes, confidence, np.ones(n_rows)) == pytest.approx(np.quantile(confidence[:, 0], 0.99))
    times = random.integers(0, 4, n_rows) + (n_rows == 1)
    repeated = np.quantile(np.repeat(confidence[:, 0], times), 0.99)
    assert surest_rows(votes, confidence, times.astype(float)) == pytest.approx(repeated)
    assert surest_rows(votes, confidence, np.full(n_rows, 0.1 / n_rows)) == pytest.approx(confidence.mean())


def test_copies_are_one_and_independent_ones_many() -> None:
    random = np.random.default_rng(0)
    one = random.integers(0, 2, (4000, 1))
    everyone = np.ones((6, 2), dtype=bool)
    assert count_independent(np.repeat(one, 6, 1), everyone, np.ones(4000)) == pytest.approx(1)
    several = random.integers(0, 2, (4000, 6))
    assert count_independent(several, everyone, np.ones(4000)) == pytest.approx(6, rel=0.01)
    half = np.arange(4000) < 2000  # a weight of 0 is a row that is not there
    mixed = np.where(half[:, None], several, np.repeat(one, 6, 1))
    assert count_independent(mixed, everyone, half.astype(float)) == pytest.approx(6, rel=0.01)
    assert count_independent(np.full((5, 6), SILENT), everyone, np.ones(5)) == 1
    odd = np.where(half[:, None], 0, several)  # votes that differ on those rows alone
    assert count_independent(odd, everyone, half.astype(float)) == 1


def alike(n: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ten LFs that say the same but for a slip in a hundred, right in four rows of five, and less sure of the fifth."""
    random = np.random.default_rng(1)
    truth = random.integers(0, 4, n)
    right = random.random(n) < 0.8
    said = np.where(right, truth, (truth + 1) % 4)
    slips = random.random((n, 10)) < 0.01
    votes = np.where(slips, random.integers(0, 4, (n, 10)), said[:, None])
    certainty = np.where(right, random.uniform(0.9, 1, n), random.uniform(0.6, 0.95, n))
    return votes, np.repeat(certainty[:, None], 10, 1).astype(np.float32), truth


def share_of_pairs_in_order(proba: np.ndarray, truth: np.ndarray) -> float:
    """How often a right label is surer than a wrong one."""
    surest, right = proba.max(1), proba.argmax(1) == truth
    return float((surest[right][:, None] > surest[~right]).mean())


def test_labels_of_lfs_that_agree_are_as_sure_as_the_lfs_were() -> None:
    votes, confidence, truth = alike()
    deaf = LabelModel(4).fit(votes).predict_proba(votes)
    model = LabelModel(4).fit(votes, confidence=confidence)
    heard = model.predict_proba(votes, confidence)
    assert (heard.argmax(1) == deaf.argmax(1)).mean() > 0.99
    assert share_of_pairs_in_order(deaf, truth) < 0.7
    assert share_of_pairs_in_order(heard, truth) > 0.9
    assert deaf.max(1).mean() > 0.99 > heard.max(1).mean()


def test_the_likeliest_class_stays_and_a_saved_model_doubts_alike(tmp_path: Path) -> None:
    votes, confidence, _ = alike(500)
    model = LabelModel(4).fit(votes, confidence=confidence)
    model.save(tmp_path / "model.safetensors")
    again = LabelModel.load(tmp_path / "model.safetensors").predict_proba(votes, confidence)
    doubting = model.predict_proba(votes, confidence)
    np.testing.assert_array_equal(again, doubting)
    certain = model.predict_proba(votes, np.ones_like(confidence))
    np.testing.assert_array_equal(certain.argmax(1), doubting.argmax(1))
    assert (certain.max(1) >= doubting.max(1)).all()


def test_the_confidence_of_an_abstention() -> None:
    votes = np.array([[1, SILENT]])
    over_classes = np.array([[[0.3, 0.7], [0.6, 0.4]]])
    with_abstain = np.array([[[0.2, 0.7, 0.1], [0.1, 0.1, 0.8]]])
    assert check_confidence(over_classes, votes, 2) == pytest.approx(np.array([[0.7, 0.0]])), "nobody knows it"
    assert check_confidence(with_abstain, votes, 2) == pytest.approx(np.array([[0.7, 0.8]]))
    assert check_confidence(np.array([[0.7, np.nan]]), votes, 2) == pytest.approx(np.array([[0.7, 0.0]]))

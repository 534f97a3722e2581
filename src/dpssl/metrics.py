"""What the numbers of a run mean, in one place, in plain numpy.

Every function leaves rows of unknown truth (-1) out and returns None where nothing is left to measure. A guess among
equals counts fractionally: a row without a vote is right with 1/C, a row with t best classes with 1/t. Precision,
recall and F1 come from the same fractional credit; macro means run over the classes that occur in the truth.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN, UNLABELED

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]
Booleans = NDArray[np.bool_]
N_CALIBRATION_BINS = 15
MOST_CELLS = 1 << 22  # of (n, C) that are worked on at a time: a million images of a thousand classes fill 8 GB
N_SUREST_PER_CLASS = 500  # the paper's Sec. 4.3: 97.36 % on CIFAR-10 with 40 labels


def annotation_metrics(soft_labels: Floats, covered: Booleans, truth: Integers) -> dict[str, Any]:
    """How good the labels of the unlabelled images are; hand in those rows alone, without the labelled ids.

    soft_labels (n, C), covered (n,), truth (n,). Keys: `coverage` (of all rows), `n_evaluated` (rows of known truth),
    `annotation_accuracy`, `annotation_macro_precision`, `annotation_macro_recall`, `annotation_macro_f1`, the same four
    with the suffix `_covered` on covered rows, `top_500_per_class` (accuracy of the 500 surest covered images of each
    annotated class; of all, where it has fewer), `annotation_log_loss`, `annotation_ece`, and `per_class`, a list with
    one dict per class.
    """
    known = truth != UNLABELED
    share_covered = coverage(covered)
    n_annotated, mean_confidence = _annotated(soft_labels, covered)
    soft_labels, covered, truth = soft_labels[known], covered[known], truth[known]
    n_classes = soft_labels.shape[1]
    right, confusion, of_covered = _score_rows(soft_labels, covered, truth)
    precision, recall, f1 = _precision_recall_f1(confusion)
    surest = _surest_rows(soft_labels, covered)
    scores = {**_macro_scores(confusion, ""), **_macro_scores(of_covered, "_covered")}
    return {
        "coverage": share_covered,
        "n_evaluated": len(truth),
        **scores,
        "top_500_per_class": _mean(right[np.concatenate(surest)]),
        "annotation_log_loss": log_loss(soft_labels, truth),
        "annotation_ece": expected_calibration_error(soft_labels, truth),
        "per_class": [
            {
                "class": label,
                "n": int((truth == label).sum()),
                "n_annotated": float(n_annotated[label]),
                "mean_confidence": _known(mean_confidence[label]),
                "precision": _known(precision[label]),
                "recall": _known(recall[label]),
                "f1": _known(f1[label]),
                "coverage": _mean(covered[truth == label]),
                "top_500_accuracy": _mean(right[surest[label]]),
            }
            for label in range(n_classes)
        ],
    }


def coverage(covered: Booleans) -> float | None:
    """Share of images with at least one vote. covered (n,)"""
    return _mean(covered)


def accuracy(predictions: Integers, truth: Integers) -> float | None:
    """Share of right predictions. predictions (n,), truth (n,)"""
    known = truth != UNLABELED
    return _mean(predictions[known] == truth[known])


def log_loss(probabilities: Floats, truth: Integers) -> float | None:
    """Mean of -log P(truth), with P kept above float32's epsilon so that one sure mistake cannot make it infinite.

    probabilities (n, C), truth (n,)
    """
    known = truth != UNLABELED
    of_truth = probabilities[known, truth[known]].astype(np.float64)  # (n,)
    return _mean(-np.log(np.clip(of_truth, np.finfo(np.float32).eps, 1.0)))


def expected_calibration_error(
    probabilities: Floats, truth: Integers, n_bins: int = N_CALIBRATION_BINS
) -> float | None:
    """Σ_b (n_b / n) |accuracy_b - confidence_b| over bins of equal width of the highest probability (Guo 2017).

    probabilities (n, C), truth (n,)
    """
    known = truth != UNLABELED
    probabilities, truth = probabilities[known], truth[known]
    if len(truth) == 0:
        return None
    confidence = probabilities.max(axis=1).astype(np.float64)  # (n,)
    right, _, _ = _score_rows(probabilities, np.ones(len(truth), dtype=np.bool_), truth)
    bins = np.clip(
        np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1
    )  # bin b holds (b / n_bins, (b + 1) / n_bins]
    gaps = np.bincount(bins, weights=right - confidence, minlength=n_bins)  # (n_bins,) n_b (accuracy_b - confidence_b)
    return float(np.abs(gaps).sum() / len(truth))


def majority_vote_accuracy(votes: Integers, truth: Integers, n_classes: int) -> float | None:
    """Accuracy of the class with most votes; t tied classes count 1/t, a row without a vote 1/C.

    votes (n, K), truth (n,)
    """
    known = truth != UNLABELED
    votes, truth = votes[known], truth[known]
    right = np.empty(len(truth))
    for rows in _parts(len(truth), n_classes):
        of_class = _count_votes(votes[rows], n_classes)
        right[rows] = _credit(of_class)[np.arange(len(of_class)), truth[rows]]
    return _mean(right)


def vote_scores(votes: Integers, truth: Integers, specialties: Booleans) -> dict[str, Any]:
    """How good votes (n, K) are, LF by LF, before any label model.

    `lf_precision`: share of the votes that are right; `recall_inside_specialties`: share of the LFs that name the class
    of an image in their tau_k; `distinct_rows`: how many rows of votes there are.
    """
    known = truth != UNLABELED
    votes, truth = votes[known], truth[known]
    right = votes == truth[:, None]
    return {
        "lf_precision": _mean(right[votes != ABSTAIN]),
        "recall_inside_specialties": _mean(right[specialties[:, truth].T]),
        "distinct_rows": len(np.unique(votes, axis=0)),
    }


def specialist_summary(specialties: Booleans) -> dict[str, Any]:
    """Specialists of each class, LFs without a class (dead), LFs whose set an earlier one has. specialties (K, C)"""
    alive = specialties[specialties.any(axis=1)]
    return {
        "specialists_per_class": specialties.sum(axis=0).tolist(),
        "n_empty_sets": len(specialties) - len(alive),
        "n_duplicate_sets": len(alive) - len(np.unique(alive, axis=0)),
    }


def _annotated(soft_labels: Floats, covered: Booleans) -> tuple[Floats, Floats]:
    """How many covered rows got each class, and the mean probability it has there (NaN without any), each (C,)."""
    n_annotated, total = np.zeros((2, soft_labels.shape[1]))
    for rows in _parts(*soft_labels.shape):
        part = soft_labels[rows][covered[rows]]
        credit = _credit(part)  # (n, C)
        n_annotated += credit.sum(0)
        total += (credit * part).sum(0)
    return n_annotated, np.divide(total, n_annotated, out=np.full(len(total), np.nan), where=n_annotated > 0)


def _parts(n_rows: int, n_classes: int) -> Iterator[slice]:
    """Row ranges of bounded size that cover all rows in order."""
    size = max(1, MOST_CELLS // max(1, n_classes))
    for start in range(0, n_rows, size):
        yield slice(start, start + size)


def _score_rows(soft_labels: Floats, covered: Booleans, truth: Integers) -> tuple[Floats, Floats, Floats]:
    """Credit on the truth (n,), and the confusion (C, C) of all rows and of the covered ones; truth is known."""
    n_classes = soft_labels.shape[1]
    right, confusion, of_covered = np.empty(len(truth)), *np.zeros((2, n_classes, n_classes))
    for rows in _parts(*soft_labels.shape):
        some, known = covered[rows], truth[rows]
        credit = _credit(np.where(some[:, None], soft_labels[rows], 0))  # (n, C)
        right[rows] = credit[np.arange(len(known)), known]
        confusion += _confusion(credit, known)
        of_covered += _confusion(credit[some], known[some])
    return right, confusion, of_covered


def _count_votes(votes: Integers, n_classes: int) -> Integers:
    """Votes of each row for each class: (n, K) -> (n, C)."""
    row, lf = np.nonzero(votes != ABSTAIN)
    cells = row * n_classes + votes[row, lf]
    return np.bincount(cells, minlength=len(votes) * n_classes).reshape(len(votes), n_classes)


def _credit(scores: Floats | Integers) -> Floats:
    """The bet each row places on each class: 1 on the best, 1/t on t best ones. (n, C) -> (n, C) rows sum to 1"""
    best = scores == scores.max(axis=1, keepdims=True)
    credit: Floats = best / best.sum(axis=1, keepdims=True)
    return credit


def _confusion(credit: Floats, truth: Integers) -> Floats:
    """(C, C): the credit that rows of a true class (first axis) give to each class."""
    confusion = np.zeros((credit.shape[1], credit.shape[1]))
    order = np.argsort(truth, kind="stable")
    classes, first = np.unique(truth[order], return_index=True)
    if len(classes):
        confusion[classes] = np.add.reduceat(credit[order], first, axis=0)
    return confusion


def _precision_recall_f1(confusion: Floats) -> tuple[Floats, Floats, Floats]:
    """(C,) each; nan for a class that does not occur in the truth, precision 0 for one that is never annotated."""
    right, true, annotated = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    occurs = np.where(true > 0, 1.0, np.nan)
    precision = occurs * right / np.where(annotated > 0, annotated, 1.0)
    recall = occurs * right / np.where(true > 0, true, 1.0)
    f1 = occurs * 2 * right / np.where(true + annotated > 0, true + annotated, 1.0)
    return precision, recall, f1


def _macro_scores(confusion: Floats, suffix: str) -> dict[str, float | None]:
    precision, recall, f1 = (scores[~np.isnan(scores)] for scores in _precision_recall_f1(confusion))
    total = confusion.sum()
    return {
        f"annotation_accuracy{suffix}": float(confusion.trace() / total) if total else None,
        f"annotation_macro_precision{suffix}": _mean(precision),
        f"annotation_macro_recall{suffix}": _mean(recall),
        f"annotation_macro_f1{suffix}": _mean(f1),
    }


def _surest_rows(soft_labels: Floats, covered: Booleans) -> list[NDArray[np.intp]]:
    """For each class the covered rows annotated with it, surest first, at most 500."""
    annotation, confidence = soft_labels.argmax(axis=1), soft_labels.max(axis=1)
    surest_first = np.argsort(-confidence, kind="stable")
    surest_first = surest_first[covered[surest_first]]
    by_class = surest_first[np.argsort(annotation[surest_first], kind="stable")]
    first = np.searchsorted(annotation[by_class], np.arange(soft_labels.shape[1] + 1))  # of each class, and the end
    return [by_class[start : min(end, start + N_SUREST_PER_CLASS)] for start, end in pairwise(first)]


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean(dtype=np.float64)) if values.size else None


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)

"""The report's one door to the truth: how the labels compare with it, where it is known. Nothing is chosen by it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import UNLABELED
from dpssl.data.table import Dataset
from dpssl.label_model.analysis import ReliabilityTable, reliability_table
from dpssl.report.contents import Labels


@dataclass(frozen=True)
class Evaluation:
    """Over the covered, unlabelled images of known truth."""

    n: int
    reliability: ReliabilityTable
    confidence: NDArray[np.floating[Any]]  # (n,)
    right: NDArray[np.bool_]  # (n,)
    confusion: NDArray[np.int64]  # (C, C) true class, label
    true_counts: NDArray[np.int64]  # (C,)

    @property
    def wrong(self) -> NDArray[np.int64]:
        """(C,) wrong labels among the images that got each class."""
        return np.asarray(self.confusion.sum(axis=0) - self.confusion.diagonal())


def evaluate_labels(dataset: Dataset, labels: Labels) -> Evaluation | None:
    """None where the truth of no labelled-by-machine image is known."""
    truth = dataset.truth[labels.rows]
    known = truth != UNLABELED
    if not known.any():
        return None
    truth, label = truth[known], labels.label[known]
    confusion = np.zeros((dataset.n_classes, dataset.n_classes), dtype=np.int64)
    np.add.at(confusion, (truth, label), 1)
    return Evaluation(
        n=len(truth),
        reliability=reliability_table(labels.soft_labels[known], truth),
        confidence=labels.confidence[known],
        right=label == truth,
        confusion=confusion,
        true_counts=confusion.sum(axis=1),
    )

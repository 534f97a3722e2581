"""The labels of a run as every export writes them: one row an image, joined from soft labels and given labels.

Comes in: soft_labels.npz, split.json and, after a review, corrections.csv. Goes out: `LabelRows`. A label that a person
gave stands whatever the label model says of it; an image without a vote, or of none of the classes, has no label.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import UNLABELED
from dpssl.errors import InputError, RunFolderError
from dpssl.review.corrections import NO_CLASS, UNDECIDED, last_decisions, read_corrections
from dpssl.run_folder import SPLIT, RunFolder

GIVEN, MODEL, NONE = "given", "model", ""


@dataclass(frozen=True)
class LabelRows:
    """n labelled images of C classes. `covered` and `source` are None where they have no meaning (new images)."""

    class_names: tuple[str, ...]  # C
    ids: NDArray[np.str_]  # (n,)
    labels: NDArray[np.int64]  # (n,) -1 = none
    confidence: NDArray[np.float32]  # (n,) probability of the label; 1 where it was given
    probabilities: NDArray[np.float32]  # (n, C)
    covered: NDArray[np.bool_] | None = None  # (n,) at least one labeling function votes
    source: NDArray[np.str_] | None = None  # (n,) "given", "model", or "" without a label

    def __len__(self) -> int:
        return len(self.ids)

    def label_of(self, row: int) -> str | None:
        label = int(self.labels[row])
        return None if label == UNLABELED else self.class_names[label]

    def take(self, rows: NDArray[Any]) -> Self:
        """The rows of a mask or of positions."""
        columns = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "class_names"}
        return replace(self, **{name: column[rows] for name, column in columns.items() if column is not None})

    def at_least(self, min_confidence: float) -> Self:
        """Above 0, the rows whose label is as sure as that; at 0 all, those without a label too."""
        if not 0 <= min_confidence <= 1:
            raise InputError(f"--min-confidence {min_confidence}: must be a probability, from 0 to 1")
        if not min_confidence:
            return self
        return self.take((self.labels != UNLABELED) & (self.confidence >= min_confidence))


def read_labels(folder: RunFolder) -> LabelRows:
    file = folder.read_soft_labels()
    n_classes = len(file.class_names)
    labels = np.where(file.covered, file.soft_labels.argmax(1), UNLABELED)
    confidence = file.soft_labels.max(1)
    source = np.where(file.covered, MODEL, NONE)
    position = {name: row for row, name in enumerate(file.ids.tolist())}
    for name, label in _given_labels(folder).items():
        if name not in position or not isinstance(label, int) or not 0 <= label < n_classes:
            raise RunFolderError(
                f"{folder.path(SPLIT)}: names the image {name!r} of class {label!r}, which soft_labels.npz does not "
                "have; was one of the two files replaced?"
            )
        row = position[name]
        labels[row], confidence[row], source[row] = label, 1.0, GIVEN
    decisions = last_decisions(read_corrections(folder, list(position), file.class_names), len(labels))
    labels[decisions != UNDECIDED] = decisions[decisions != UNDECIDED]
    confidence[decisions >= 0], source[decisions >= 0] = 1.0, GIVEN
    source[decisions == NO_CLASS] = NONE
    return LabelRows(file.class_names, file.ids, labels, confidence, file.soft_labels, file.covered, source)


def _given_labels(folder: RunFolder) -> dict[str, Any]:
    """By id. A folder that `dpssl label VOTES` made without `--labels` has none."""
    split = folder.read_json(SPLIT) if folder.has(SPLIT) else {"labeled": {}}
    labeled = split.get("labeled") if isinstance(split, dict) else None
    if not isinstance(labeled, dict):
        raise RunFolderError(f"{folder.path(SPLIT)}: is damaged (no object `labeled`); take it from a copy of the run")
    return labeled

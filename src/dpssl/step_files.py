"""What crosses the borders between the steps: votes (step 1 to 2) and soft labels (step 2 to 3), checked when made.

A file from elsewhere becomes one of these classes before any step sees it, so the steps need not check again.
"""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpssl.constants import ABSTAIN
from dpssl.errors import InputError


@dataclass(frozen=True)
class VoteFile:
    """What step 1 hands to step 2, checked and in the types of `votes.npz`."""

    votes: NDArray[np.signedinteger[Any]]  # (n, K) int8, int16 above 127 classes; -1 = abstain
    confidence: NDArray[np.float16]  # (n, K) the probability of that vote
    specialties: NDArray[np.bool_]  # (K, C)
    ids: NDArray[np.str_]  # (n,)
    class_names: tuple[str, ...]  # C

    def __post_init__(self) -> None:
        votes, n_classes = np.asarray(self.votes), len(self.class_names)
        if votes.ndim != 2 or votes.dtype.kind not in "iu":
            raise InputError(f"votes have shape {votes.shape} and dtype {votes.dtype}; expected integers (n, K)")
        n, n_lfs = votes.shape
        _check_shape("confidence", self.confidence, (n, n_lfs))
        _check_shape("specialties", self.specialties, (n_lfs, n_classes))
        _check_shape("ids", self.ids, (n,))
        outside = np.argwhere((votes < ABSTAIN) | (votes >= n_classes))
        if len(outside):
            row, lf = outside[0]
            raise InputError(
                f"votes of row {row}, LF {lf}: {votes[row, lf]} is no class; "
                f"votes go from 0 to {n_classes - 1}, and {ABSTAIN} means abstain"
            )
        object.__setattr__(self, "votes", votes.astype(np.int8 if n_classes <= 127 else np.int16))
        object.__setattr__(self, "confidence", np.asarray(self.confidence, dtype=np.float16))
        object.__setattr__(self, "specialties", np.asarray(self.specialties, dtype=np.bool_))
        object.__setattr__(self, "ids", string_array(self.ids))
        object.__setattr__(self, "class_names", tuple(map(str, self.class_names)))

    def aligned_to(self, ids: NDArray[np.str_]) -> Self:
        """The same votes with the rows in the order of `ids`, of which each must have one."""
        rows = _rows_of(ids, self.ids)
        return replace(self, votes=self.votes[rows], confidence=self.confidence[rows], ids=self.ids[rows])


@dataclass(frozen=True)
class SoftLabelFile:
    """What step 2 hands to step 3. A row without a vote holds the class prior and `covered` = False."""

    ids: NDArray[np.str_]  # (n,)
    class_names: tuple[str, ...]  # C
    soft_labels: NDArray[np.float32]  # (n, C) rows sum to 1
    covered: NDArray[np.bool_]  # (n,)

    def __post_init__(self) -> None:
        soft_labels = np.asarray(self.soft_labels, dtype=np.float32)
        _check_shape("soft_labels", soft_labels, (len(self.ids), len(self.class_names)))
        _check_shape("covered", self.covered, (len(self.ids),))
        good = (soft_labels >= 0).all(axis=1) & (np.abs(soft_labels.sum(axis=1, dtype=np.float64) - 1) < 1e-4)
        if not good.all():
            row = int(np.argmin(good))
            raise InputError(
                f"soft_labels of row {row} are no probabilities that sum to 1: {soft_labels[row].tolist()}"
            )
        object.__setattr__(self, "ids", string_array(self.ids))
        object.__setattr__(self, "class_names", tuple(map(str, self.class_names)))
        object.__setattr__(self, "soft_labels", soft_labels)
        object.__setattr__(self, "covered", np.asarray(self.covered, dtype=np.bool_))

    def aligned_to(self, ids: NDArray[np.str_]) -> Self:
        """The same soft labels with the rows in the order of `ids`, of which each must have one."""
        rows = _rows_of(ids, self.ids)
        return replace(self, soft_labels=self.soft_labels[rows], covered=self.covered[rows], ids=self.ids[rows])


def soft_label_table(file: SoftLabelFile) -> str:
    """The rows id, label, confidence, covered of `soft_labels.csv`, in the order of the .npz.

    An uncovered row has an empty label: its probabilities are the class prior, of which no argmax is taken.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["id", "label", "confidence", "covered"])
    names = [spreadsheet_text(class_name) for class_name in file.class_names]
    winners, confidence = file.soft_labels.argmax(axis=1), file.soft_labels.max(axis=1)
    for name, winner, probability, covered in zip(file.ids, winners, confidence, file.covered, strict=True):
        rows.writerow(
            [spreadsheet_text(str(name)), names[winner] if covered else "", f"{probability:.6f}", bool(covered)]
        )
    return text.getvalue()


def damaged_table(damaged: Mapping[str, str]) -> str:
    """The rows file, reason of `damaged.csv`: image files that were left out."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["file", "reason"])
    rows.writerows((spreadsheet_text(name), spreadsheet_text(reason)) for name, reason in damaged.items())
    return text.getvalue()


def damaged_files(table: str) -> list[str]:
    """The files that a `damaged.csv` names."""
    return [(row.get("file") or "").removeprefix("'") for row in csv.DictReader(io.StringIO(table, newline=""))]


def spreadsheet_text(value: str) -> str:
    """`value` with an apostrophe before it where a spreadsheet would run it as a formula.

    Ids come from file names, which others choose; `=cmd|...` must stay text. A leading apostrophe is doubled, so
    dropping one gives the value back; the .npz holds every id unchanged.
    """
    return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r", "'")) else value


def string_array(values: Any) -> NDArray[np.str_]:
    """As narrow a string array as the values allow, so that equal strings are equal bytes."""
    return np.array([str(value) for value in values], dtype=np.str_)


def _rows_of(ids: NDArray[np.str_], found: NDArray[np.str_]) -> NDArray[np.int64]:
    """Where each of `ids` is in `found`, which must hold the same ids in some order."""
    position = {name: row for row, name in enumerate(found.tolist())}
    missing = next((name for name in ids.tolist() if name not in position), None)
    if missing is not None:
        raise InputError(f"it has no row for the image {missing!r}")
    if len(found) != len(ids):
        raise InputError(f"it has {len(found)} rows for {len(ids)} images")
    return np.array([position[name] for name in ids.tolist()], dtype=np.int64)


def _check_shape(name: str, array: ArrayLike, shape: tuple[int, ...]) -> None:
    if np.shape(array) != shape:
        raise InputError(f"{name} has shape {np.shape(array)}; expected {shape}")

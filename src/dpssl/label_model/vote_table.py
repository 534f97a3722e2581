"""Step 2's votes with what comes beside them, from a file or from memory: class names, ids, confidences."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.errors import InputError
from dpssl.label_model.votes import Bools
from dpssl.named_classes import SHOWN, ClassReader, Place, whole_numbers

ID_COLUMNS = ("id", "ids")
LABEL_COLUMNS = ("y", "label")
INDEX_COLUMNS = ("", "unnamed: 0", "index", "__index_level_0__")  # as pandas writes an index that has no name
NO_VOTES = ID_COLUMNS + LABEL_COLUMNS + INDEX_COLUMNS  # columns of a table that are no labeling functions
FEW_CLASSES = 10  # as many different names a column of any length may have: docs/label_model.md


def is_one_of(column: str, names: Sequence[str]) -> bool:
    """Whether a column of a table has one of these names, in capitals or with blanks around it too."""
    return column.strip().lower() in names


@dataclass(frozen=True)
class VoteTable:
    """Only `votes` is always there; numbers are checked when a model is fitted."""

    votes: Any  # (n, K), -1 = abstain; sparse matrices stay what they are
    confidence: NDArray[Any] | None = None  # (n, K) probability of each vote
    specialties: Bools | None = None  # (K, C)
    ids: NDArray[Any] | None = None  # (n,)
    class_names: list[str] | None = None
    y: NDArray[np.int64] | None = None  # (n,) labels the file carries, -1 = none
    lf_names: list[str] | None = None

    def numbered(self, place: Place) -> "VoteTable":
        """Class numbers in place of text in votes and labels: by its own names, or by those that are met."""
        reader = ClassReader(self.class_names)
        votes = reader.read(self.votes, place)
        y = None if self.y is None else whole_numbers(reader.read(np.asarray(self.y), place), place)
        return replace(self, votes=votes, y=y).in_alphabetical_order(reader)

    def in_alphabetical_order(self, reader: ClassReader) -> "VoteTable":
        """Where `reader` numbered names as it met them: the same with numbers in the order of the alphabet."""
        if self.class_names is not None or not reader.met_names:
            return self
        names, order = reader.in_order()
        return self.renumbered(order, names)

    def renumbered(self, order: NDArray[np.int16], class_names: list[str]) -> "VoteTable":
        """The same with other numbers: `order` has the new one of each old one, and -1 at its end."""
        y = None if self.y is None else _renumber(self.y, order, "y, row").astype(np.int64)
        if hasattr(self.votes, "tocsr"):
            votes = self.votes.tocoo(copy=True)
            votes.data = _renumber(votes.data, order, "votes, stored entry")
        else:
            votes = _renumber(self.votes, order, "votes, row")
        return replace(self, votes=votes, y=y, class_names=class_names)

    def without_texts(self, source: str) -> "VoteTable":
        """The same; refused if a column has nearly as many names as rows: it is of texts or of files, not of votes."""
        for lf, column in enumerate(self.lf_names or () if self.class_names else ()):
            spoken = self.votes[:, lf][self.votes[:, lf] != ABSTAIN]
            n_different = len(np.unique(spoken))
            if n_different > max(FEW_CLASSES, len(spoken) // 2):
                raise InputError(
                    f"{source}, column {column!r}: {n_different} different entries in {len(spoken)} rows; is it one "
                    "of votes? Take it out, or call it id where it names the rows"
                )
        return self

    def with_columns(self, lf_names: list[str] | None) -> "VoteTable":
        """The same in the order of these labeling functions, where both have names."""
        if self.lf_names is None or lf_names is None or self.lf_names == lf_names:
            return self
        place = {name: column for column, name in enumerate(self.lf_names)}
        if len(place) < len(self.lf_names) or sorted(place) != sorted(lf_names):
            missing = [name for name in lf_names if name not in place][:SHOWN]
            unknown = [name for name in self.lf_names if name not in lf_names][:SHOWN]
            raise InputError(
                f"votes do not have the columns that the model was fitted on: missing {missing}, unknown {unknown}; "
                "give the same columns, in any order, empty where a labeling function abstains"
            )
        order = [place[name] for name in lf_names]
        return replace(
            self,
            votes=(self.votes.tocsr() if hasattr(self.votes, "tocsr") else self.votes)[:, order],
            confidence=None if self.confidence is None else np.asarray(self.confidence)[:, order],
            specialties=None if self.specialties is None else np.asarray(self.specialties)[order],
            lf_names=lf_names,
        )


def _renumber(numbers: NDArray[Any], order: NDArray[np.int16], what: str) -> NDArray[np.int16]:
    """The new number of each old one. One that is no class would fetch that of another from the end of `order`."""
    if numbers.dtype.kind not in "iu":
        numbers = whole_numbers(numbers, lambda row=0, *_: f"{what} {row}")
    n_classes = len(order) - 1
    if not ABSTAIN <= numbers.min(initial=ABSTAIN) <= numbers.max(initial=ABSTAIN) < n_classes:
        row = int(np.argwhere((numbers < ABSTAIN) | (numbers >= n_classes))[0][0])
        raise InputError(f"{what} {row}: a number outside the range; classes are 0 to {n_classes - 1}")
    renumbered: NDArray[np.int16] = order[numbers]
    return renumbered

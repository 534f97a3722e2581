"""Step 2's votes with what comes beside them, from a file or from memory: class names, ids, confidences."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.label_model.votes import Bools
from dpssl.named_classes import ClassReader, Place

ID_COLUMNS = ("id", "ids")
LABEL_COLUMNS = ("y", "label")
NO_VOTES = ID_COLUMNS + LABEL_COLUMNS  # columns of a table that are no labeling functions


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
        y = None if self.y is None else reader.read(self.y, place).astype(np.int64)
        return replace(self, votes=votes, y=y).in_alphabetical_order(reader)

    def in_alphabetical_order(self, reader: ClassReader) -> "VoteTable":
        """Where `reader` numbered names as it met them: the same with numbers in the order of the alphabet."""
        if self.class_names is not None or not reader.met_names:
            return self
        names, order = reader.in_order()
        return self.renumbered(order, names)

    def renumbered(self, order: NDArray[np.int64], class_names: list[str]) -> "VoteTable":
        """The same with other numbers: `order` has the new one of each old one, and -1 at its end."""
        y = None if self.y is None else order[self.y]
        return replace(self, votes=order[self.votes], y=y, class_names=class_names)

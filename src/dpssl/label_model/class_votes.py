"""Step 2, the default model: how many votes each class of a row got; sparse, since most classes get none."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.label_model.votes import Floats

try:
    from scipy.sparse import csr_array
except ModuleNotFoundError:  # numpy alone does the same, more slowly for many classes
    csr_array = None

Ints = NDArray[np.int64]

DENSE_CLASSES = 32  # up to so many classes a dense product is faster than a sparse one


@dataclass(frozen=True)
class ClassVotes:
    """The (row, class) pairs with votes, row by row. A value per pair is a sparse (n, C) matrix."""

    n_classes: int
    indptr: Ints  # (n + 1,) where each row's pairs begin
    rows: Ints  # (pairs,)
    classes: Ints  # (pairs,)
    count: Floats  # (pairs, S) votes by step of confidence
    total: Floats  # (n, S) votes of the row
    most: Floats  # (n,) votes of the class with the most

    @cached_property
    def cells(self) -> Ints:
        """Where the pairs lie in a flattened (n, C) array."""
        return self.rows * self.n_classes + self.classes

    def times(self, values: Floats, matrix: Floats) -> Floats:
        """(n, C) sparse @ (C, D) -> (n, D)."""
        return np.asarray(self._sparse(values) @ matrix)

    def transposed_times(self, values: Floats, matrix: Floats) -> Floats:
        """(C, n) sparse @ (n, D) -> (C, D)."""
        return np.asarray(self._sparse(values).T @ matrix)

    def _sparse(self, values: Floats) -> Any:
        shape = (len(self.total), self.n_classes)
        if self.n_classes > DENSE_CLASSES and csr_array is not None:
            return csr_array((values, self.classes, self.indptr), shape=shape)
        dense = np.zeros(shape)
        dense.ravel()[self.cells] = values
        return dense


def count_class_votes(
    n_rows: int, n_classes: int, n_steps: int, row: Ints, outcome: Ints, weight: Floats
) -> ClassVotes:
    """From single votes: their row, outcome v · S + s and weight, each (votes,)."""
    cell, step = row * n_classes + outcome // n_steps, outcome % n_steps
    has_votes = np.bincount(cell, minlength=n_rows * n_classes) > 0
    cells, pair = np.flatnonzero(has_votes), (np.cumsum(has_votes) - 1)[cell]
    count = np.bincount(pair * n_steps + step, weight, len(cells) * n_steps).astype(np.float64)
    total = np.bincount(row * n_steps + step, weight, n_rows * n_steps).astype(np.float64)
    count, total = count.reshape(-1, n_steps), total.reshape(-1, n_steps)
    pairs_per_row = np.bincount(cells // n_classes, minlength=n_rows)
    indptr = np.concatenate([[0], np.cumsum(pairs_per_row)])
    most = np.zeros(n_rows)
    filled = np.flatnonzero(pairs_per_row)
    if len(filled):
        most[filled] = np.maximum.reduceat(count.sum(1), indptr[filled])
    return ClassVotes(n_classes, indptr, cells // n_classes, cells % n_classes, count, total, most)

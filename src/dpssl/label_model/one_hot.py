"""Step 2: spoken votes as a sparse 0/1 matrix: a model's cost grows with the votes given, not with n · K · C.

Row i has a one in column k·C + v for every vote v of LF k; abstentions store nothing. Two products are all that the
models need: `sum_rows` adds up one table row per vote (the E step), `sum_columns` collects weights per (LF, vote)
(the M step, and the gradient of the first). scipy does both when it is installed; without it numpy does, more slowly.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.label_model.votes import Floats, chunks


class OneHotVotes:
    """The spoken votes of some rows: n × (K·C), one per vote."""

    def __init__(self, votes: NDArray[Any], n_classes: int) -> None:
        spoken = votes != ABSTAIN  # (n, K)
        self.n_rows, self.n_lfs = votes.shape
        self.n_classes = n_classes
        self.indptr = np.concatenate([[0], np.cumsum(spoken.sum(1))])
        first_column = np.arange(self.n_lfs, dtype=np.int64) * n_classes
        self.columns = (votes + first_column)[spoken]  # row by row, as indptr says
        self._csr = self._build_csr()

    def _build_csr(self) -> Any:
        try:
            from scipy.sparse import csr_array
        except ModuleNotFoundError:
            return None
        ones = np.ones(len(self.columns))
        return csr_array((ones, self.columns, self.indptr), shape=(self.n_rows, self.n_lfs * self.n_classes))

    def sum_rows(self, table: Floats) -> Floats:
        """Σ over the votes of each row of table[k·C + v]: (K·C, D) -> (n, D)."""
        if self._csr is not None:
            return np.asarray(self._csr @ table)
        sums = np.zeros((self.n_rows, table.shape[1]))
        filled = np.flatnonzero(np.diff(self.indptr))
        if len(filled):
            sums[filled] = np.add.reduceat(table[self.columns], self.indptr[filled])
        return sums

    def sum_columns(self, weights: Floats) -> Floats:
        """Σ over the rows of weights[i] for each (k, v): (n, D) -> (K·C, D)."""
        n_columns = self.n_lfs * self.n_classes
        if self._csr is not None:
            return np.asarray(self._csr.T @ weights)
        rows = np.repeat(np.arange(self.n_rows), np.diff(self.indptr))
        by_column = [np.bincount(self.columns, column[rows], n_columns) for column in weights.T]
        return np.stack(by_column, axis=1)


@dataclass(frozen=True)
class DistinctRows:
    """Identical rows of votes (with identical labels) counted once."""

    first: NDArray[np.int64]  # (m,) where each distinct row occurs first
    inverse: NDArray[np.int64]  # (n,) which distinct row each row is


def distinct_rows(votes: NDArray[Any], y: NDArray[np.int64] | None = None) -> DistinctRows:
    """Group equal rows, in an order that depends on their content alone.

    Rows are grouped by a 64-bit hash, which is ten times faster than sorting the rows themselves; the groups are
    then compared with their rows, so that a collision cannot merge two different rows.
    """
    multipliers = np.random.default_rng(0).integers(1, 2**63, size=votes.shape[1] + 1, dtype=np.uint64) | np.uint64(1)
    keys = np.empty(len(votes), dtype=np.uint64)
    for rows in chunks(*votes.shape):
        keys[rows] = (votes[rows].astype(np.uint64) * multipliers[:-1]).sum(1, dtype=np.uint64)
    if y is not None:
        keys += y.astype(np.uint64) * multipliers[-1]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    same = y is None or np.array_equal(y[first[inverse]], y)
    for rows in chunks(*votes.shape):
        same = same and np.array_equal(votes[first[inverse[rows]]], votes[rows])
    if not same:
        everything = np.arange(len(votes))
        return DistinctRows(everything, everything)
    return DistinctRows(first, inverse)

"""Step 2's votes, (n, K) integers with -1 for abstain: what every model asks of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN

Votes = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

CHUNK_VOTES = 1 << 22  # votes handled at a time: a few tens of MB, whatever the number of rows


def vote_dtype(n_classes: int) -> type[np.signedinteger[Any]]:
    """The smallest integer that holds every class and -1."""
    return np.int8 if n_classes <= 127 else np.int16 if n_classes <= 32767 else np.int32


def covered(votes: Any) -> Bools:
    """Which rows have at least one vote, (n,) bool."""
    if hasattr(votes, "tocsr"):
        return np.asarray(np.diff(votes.tocsr().indptr) > 0)
    array: Bools = (np.asarray(votes) != ABSTAIN).any(axis=1)
    return array


def count_votes(votes: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """How often each LF votes for each class, (K, C)."""
    n_lfs = votes.shape[1]
    counts = np.zeros(n_lfs * (n_classes + 1), dtype=np.int64)
    first_outcome = np.arange(n_lfs) * (n_classes + 1)
    for rows in chunks(*votes.shape):
        counts += np.bincount((votes[rows] + (first_outcome + 1)).ravel(), minlength=len(counts))
    return counts.reshape(n_lfs, n_classes + 1)[:, 1:]  # outcome 0 is abstain


def chunks(n_rows: int, width: int) -> Iterator[slice]:
    """Row ranges of bounded size that cover all rows in order; width is that of the widest array made of them."""
    size = max(1, CHUNK_VOTES // max(1, width))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def unanimous_votes(votes: NDArray[Any]) -> NDArray[Any]:
    """The class of every row on which two or more LFs speak and all say the same, (n,); -1 for the other rows."""
    highest = votes.max(axis=1)
    lowest = np.where(votes == ABSTAIN, np.iinfo(votes.dtype).max, votes).min(axis=1)
    several = (votes != ABSTAIN).sum(axis=1) >= 2
    return np.asarray(np.where(several & (highest == lowest), highest, ABSTAIN))

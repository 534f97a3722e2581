"""Images that are there more than once, byte by byte."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def find_copies(ids: Sequence[str], digests: NDArray[np.uint8]) -> list[list[str]]:
    """Groups of ids whose files have the same digest; `digests` is (n, 16), a row an id."""
    halves = np.ascontiguousarray(digests).view(np.uint64)  # (n, 2)
    order = np.lexsort(halves.T)
    same = (halves[order[1:]] == halves[order[:-1]]).all(1)
    starts = np.flatnonzero(np.r_[True, ~same]) if len(order) else np.empty(0, dtype=np.int64)
    ends = np.r_[starts[1:], len(order)]
    groups = zip(starts[ends - starts > 1], ends[ends - starts > 1], strict=True)
    return sorted(sorted(ids[row] for row in order[start:end]) for start, end in groups)

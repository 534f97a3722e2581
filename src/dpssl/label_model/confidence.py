"""Step 2, the default model: LFs' confidences as S ordered steps, relative to the other votes of the row.

LFs are confident on scales of their own, so a confidence is first ranked among those of the same LF's votes (mid-ranks
in 0 … 1). On a hard row all LFs are unsure together, which says that the row is hard, not who is right; so what counts
is a vote's rank less the mean rank of its row, in five steps. An LF, or all of them, with one confidence for
everything is always in the middle. How much a step says is learnt (c in `difficulty`), alike for all LFs.

Absolute ranks, and steps whose meaning may differ with the row's difficulty, labelled worse than no confidences at all
(votes of small classifiers on scikit-learn's digits, docs/label_model.md).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.label_model.votes import Floats, chunks

STEP_BEGINS = np.array([-0.3, -0.1, 0.1, 0.3])  # relative rank at which steps 1 … 4 begin
N_STEPS = len(STEP_BEGINS) + 1
N_BINS = 1024  # confidences are ranked on a logit scale, where .999 and .9999 differ as .9 and .99 do
LARGEST_LOGIT = 16.0


def rank_confidences(votes: NDArray[Any], confidence: NDArray[Any]) -> Floats:
    """(K, bins): the mid-rank of every confidence among the votes of the same LF."""
    n_lfs = votes.shape[1]
    counts = np.zeros((n_lfs, N_BINS))
    for rows in chunks(*votes.shape):
        spoken, bins = np.asarray(votes[rows]) != ABSTAIN, _bins(confidence[rows])
        for k in range(n_lfs):
            counts[k] += np.bincount(bins[spoken[:, k], k], minlength=N_BINS)
    return np.asarray((counts.cumsum(1) - counts / 2) / np.maximum(counts.sum(1, keepdims=True), 1))


def confidence_steps(votes: NDArray[Any], confidence: NDArray[Any], ranks: Floats) -> NDArray[np.int64]:
    """The step of every vote, (n, K) with values 0 … S - 1; abstentions get one too, without meaning."""
    spoken = votes != ABSTAIN
    rank = ranks[np.arange(votes.shape[1]), _bins(confidence)] * spoken  # (n, K)
    row_mean = rank.sum(1, keepdims=True) / np.maximum(spoken.sum(1, keepdims=True), 1)
    relative = (rank - row_mean).round(9)  # equal ranks differ by rounding only
    return np.asarray(np.searchsorted(STEP_BEGINS, relative, side="right"))


def _bins(confidence: NDArray[Any]) -> NDArray[np.int64]:
    probability = np.clip(np.asarray(confidence, dtype=np.float64), 1e-9, 1 - 1e-9)
    logit = np.log(probability) - np.log1p(-probability)
    return np.clip(((logit / LARGEST_LOGIT + 1) * (N_BINS / 2)).astype(np.int64), 0, N_BINS - 1)

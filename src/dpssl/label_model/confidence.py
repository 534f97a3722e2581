"""Step 2, the default model: LFs' confidences as S ordered steps.

LFs are confident on scales of their own, so what counts is the rank of a confidence among those of the same LF's
votes: step s holds mid-ranks s/S … (s + 1)/S. An LF whose confidences are all equal gets the middle step everywhere.
How much a step says is learnt (c_h in `difficulty`), alike for all LFs; steps that say nothing change nothing.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.label_model.votes import chunks

Ints = NDArray[np.int64]

N_STEPS = 5
N_BINS = 4096  # confidences are ranked on a logit scale, where .999 and .9999 differ as .9 and .99 do
LARGEST_LOGIT = 16.0


def step_thresholds(votes: NDArray[Any], confidence: NDArray[Any]) -> Ints:
    """(K, S - 1): the bin at which each LF's step s = 1 … S - 1 begins; N_BINS for steps it never takes."""
    n_lfs = votes.shape[1]
    counts = np.zeros((n_lfs, N_BINS))
    for rows in chunks(*votes.shape):
        spoken, bins = np.asarray(votes[rows]) != ABSTAIN, _bins(confidence[rows])
        for k in range(n_lfs):
            counts[k] += np.bincount(bins[spoken[:, k], k], minlength=N_BINS)
    mid_rank = (counts.cumsum(1) - counts / 2) / np.maximum(counts.sum(1, keepdims=True), 1)  # (K, bins)
    thresholds = np.empty((n_lfs, N_STEPS - 1), dtype=np.int64)
    for s in range(1, N_STEPS):
        reached = (mid_rank >= s / N_STEPS) & (counts > 0)
        thresholds[:, s - 1] = np.where(reached.any(1), reached.argmax(1), N_BINS)
    return thresholds


def confidence_steps(confidence: NDArray[Any], thresholds: Ints) -> Ints:
    """The step of every confidence, (n, K) with values 0 … S - 1."""
    bins = _bins(confidence)
    steps: Ints = (bins[:, :, None] >= thresholds).sum(2)
    return steps


def _bins(confidence: NDArray[Any]) -> Ints:
    probability = np.clip(np.asarray(confidence, dtype=np.float64), 1e-9, 1 - 1e-9)
    logit = np.log(probability) - np.log1p(-probability)
    bins: Ints = ((logit / LARGEST_LOGIT + 1) * (N_BINS / 2)).astype(np.int64)
    return np.clip(bins, 0, N_BINS - 1)

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

Bins = NDArray[np.int16]

STEP_BEGINS = np.array([-0.3, -0.1, 0.1, 0.3])  # relative rank at which steps 1 … 4 begin
N_STEPS = len(STEP_BEGINS) + 1
N_BINS = 1024  # confidences are ranked on a logit scale, where .999 and .9999 differ as .9 and .99 do
LARGEST_LOGIT = 16.0
SMALLEST, LARGEST = np.float32(1e-9), np.float32(1 - 6e-8)  # logits beyond the outermost bins, and finite


def confidence_bins(confidence: NDArray[Any]) -> Bins:
    """The bin of every confidence, (n, K), on the scale of logits."""
    bins = np.empty(confidence.shape, dtype=np.int16)
    for rows in chunks(*confidence.shape):
        bins[rows] = _place(np.asarray(confidence[rows]))
    return bins


def rank_confidences(votes: NDArray[Any], bins: Bins, weight: Floats) -> Floats:
    """(K, bins): the mid-rank of every confidence among the votes of the same LF.

    votes (n, K), bins (n, K) and weight (n,), by row.
    """
    n_lfs = votes.shape[1]
    counts = np.zeros((n_lfs, N_BINS))
    for rows in chunks(*votes.shape):
        part, part_bins, part_weight = np.asarray(votes[rows]), bins[rows], weight[rows]
        for k in range(n_lfs):
            said = np.flatnonzero(part[:, k] != ABSTAIN)
            counts[k] += np.bincount(part_bins[said, k], part_weight[said], N_BINS)
    total = counts.sum(1, keepdims=True)
    return np.asarray((counts.cumsum(1) - counts / 2) / np.where(total > 0, total, 1.0))


def confidence_steps(votes: NDArray[Any], bins: Bins, ranks: Floats) -> NDArray[np.int8]:
    """The step of every vote, (n, K) with values 0 … S - 1; abstentions get one too, without meaning."""
    spoken = votes != ABSTAIN
    rank = ranks[np.arange(votes.shape[1]), bins]  # (n, K)
    rank *= spoken
    rank -= rank.sum(1, keepdims=True) / np.maximum(spoken.sum(1, keepdims=True), 1)
    relative = rank.round(9, out=rank)  # equal ranks differ by rounding only
    steps = np.zeros(votes.shape, dtype=np.int8)
    for begin in STEP_BEGINS:
        steps += relative >= begin
    return steps


def _place(confidence: NDArray[Any]) -> NDArray[np.float32]:
    """The logit on a scale from 0 to N_BINS - 1.

    Float32 takes a third of float64's time. Confidences in float16 or 255ths get the same bins, others with rare
    exceptions, which are one bin off.
    """
    probability = np.clip(np.asarray(confidence, dtype=np.float32), SMALLEST, LARGEST)
    place = np.log(probability)
    place -= np.log1p(np.negative(probability, out=probability))  # the logit
    place *= np.float32(N_BINS / 2 / LARGEST_LOGIT)
    place += np.float32(N_BINS / 2)
    return np.clip(place, 0, N_BINS - 1, out=place)

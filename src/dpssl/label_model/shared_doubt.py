"""Step 2, the default model: the doubt that LFs share, which no number of votes removes.

    P'(y | row) = (1 - d) P(y | row) + d / C,        d = (1 - c / c*)^m

c is the mean confidence of the row's LFs, of those that abstain too where it is known; c* that of the surest rows, so
that LFs which are equally sure of everything doubt nothing; m the number of independent LFs that they amount to. EM
takes agreement for accuracy: LFs on one backbone also agree where they are wrong, so that P is nearly 1 on every row,
and all that tells right from wrong is how sure they were. The doubts of m independent LFs would have to come true
together, hence the power: where there are many, d vanishes. The likeliest class stays as it is.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.label_model.dependence import effective_lfs
from dpssl.label_model.votes import Bools, Floats, chunks

SUREST = 0.99
TINY = 1e-12


def count_independent(votes: NDArray[Any], specialties: Bools, weight: Floats) -> float:
    """m: what a class's LFs are worth, mean over the classes that have any. votes (n, K), specialties (K, C)."""
    effective = effective_lfs(votes, specialties, weight)
    return float(effective[effective > 0].mean()) if effective.any() else 1.0


def surest_rows(votes: NDArray[Any], confidence: NDArray[Any], weight: Floats) -> float:
    """c*, from votes and confidences (n, K) and row weights (n,): what one row in a hundred exceeds.

    With all W = Σ weight rows in a line by their c, the mean over the stretch of length 1 that begins at .99 (W - 1).
    For weights of 1 that is numpy's quantile, and a weight of m is m rows.
    """
    mean = np.empty(len(votes))
    for rows in chunks(*votes.shape):
        mean[rows] = _mean_confidence(np.asarray(votes[rows]), np.asarray(confidence[rows]))
    order = np.argsort(mean)
    ends = np.cumsum(weight[order])
    if not len(ends) or ends[-1] <= 0:
        return 1.0
    begin = SUREST * max(ends[-1] - 1, 0.0)
    inside = np.diff(ends.clip(begin, begin + 1), prepend=begin)  # (n,) what of each row's weight lies in the stretch
    return float(inside @ mean[order] / inside.sum())


def shared_doubt(votes: NDArray[Any], confidence: NDArray[Any], surest: float, n_independent: float) -> Floats:
    """d of every row, (n,), from votes and confidences (n, K)."""
    relative = _mean_confidence(votes, confidence) / max(surest, TINY)
    return np.asarray((1 - relative).round(9).clip(0, 1) ** n_independent)  # equal confidences differ by rounding only


def _mean_confidence(votes: NDArray[Any], confidence: NDArray[Any]) -> Floats:
    """c of every row, (n,). A confidence of 0 with an abstention is unknown; where all are, nothing is in doubt."""
    known = (votes != ABSTAIN) | (confidence > 0)
    mean = (confidence * known).sum(1, dtype=np.float64) / np.maximum(known.sum(1), 1)
    return np.asarray(np.where(known.any(1), mean, 1.0))


def with_doubt(log_proba: Floats, doubt: Floats) -> Floats:
    """log P', (n, C)."""
    mixed: Floats = np.log((1 - doubt[:, None]) * np.exp(log_proba) + doubt[:, None] / log_proba.shape[1])
    return np.where(doubt[:, None] > 0, mixed, log_proba)  # what is nearly impossible stays apart without a doubt

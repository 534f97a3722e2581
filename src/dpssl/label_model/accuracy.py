"""Step 2: how accurate is each LF, without the truth? Eq. 12-15, and an estimator for class-dependent abstention.

The paper's triplets assume E[ẑz | z] to be the same for z = +1 and z = -1. Specialised LFs break that: they abstain on
the classes they do not know. On such votes the triplet estimate hardly follows the truth (`accuracy_error` measures
it); `em_accuracy` reads the same quantities off fitted outcome tables, where abstention depends on the class.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.errors import InputError
from dpssl.label_model.checks import VoteData
from dpssl.label_model.dawid_skene import fit_dawid_skene
from dpssl.label_model.votes import Bools, Floats, chunks

ESTIMATORS = ("triplet-mean", "triplet-median", "em")


@dataclass(frozen=True)
class AccuracyEstimate:
    """Accuracies of every LF in every one-versus-all task; NaN where the LF gives no vote to judge."""

    accuracy: Floats  # (K, C) â_i^k = P(ẑ_i^k = z_i | ẑ_i^k ≠ 0)
    class_accuracy: Floats | None  # (K, C) b̂_i^k = P(ẑ_i^k = z_i | ẑ_i^k = 1); None where the method has none
    clipped: float = 0.0  # share of the estimates that had to be moved into the possible range


def one_versus_all(votes: NDArray[Any], n_classes: int) -> NDArray[np.int8]:
    """Eq. 12: ẑ_i^k = 1 if ŷ^k = i, 0 if the LF abstains, -1 otherwise; (C, n, K)."""
    classes = np.arange(n_classes)[:, None, None]
    return np.where(votes == ABSTAIN, 0, np.where(votes == classes, 1, -1)).astype(np.int8)


def truth_moments(votes: NDArray[Any], y: NDArray[Any], n_classes: int) -> Floats:
    """Eq. 13: E[ẑ_i^k z_i] = 2 P(ẑ_i^k = z_i) + P(ẑ_i^k = 0) - 1, counted with the truth; (K, C). Evaluation only."""
    z = np.where(y == np.arange(n_classes)[:, None], 1, -1)  # (C, n)
    right = one_versus_all(votes, n_classes) == z[:, :, None]  # (C, n, K)
    silent = (votes == ABSTAIN).mean(0)  # (K,)
    return np.asarray((2 * right.mean(1) + silent - 1).T)


def true_accuracy(votes: NDArray[Any], y: NDArray[Any], n_classes: int) -> AccuracyEstimate:
    """The accuracies counted with the truth. Evaluation only, and the oracle of the paper's R."""
    spoken = (votes != ABSTAIN).sum(0)[:, None]  # (K, 1)
    accuracy = moments_to_accuracy(truth_moments(votes, y, n_classes), (votes == ABSTAIN).mean(0))
    voted = np.stack([(votes == i).sum(0) for i in range(n_classes)], axis=1)  # (K, C)
    right = np.stack([(votes[y == i] == i).sum(0) for i in range(n_classes)], axis=1)
    with np.errstate(invalid="ignore"):
        class_accuracy = np.where(voted > 0, right / voted, np.nan)
    return AccuracyEstimate(np.where(spoken > 0, accuracy, np.nan), class_accuracy)


def vote_moments(votes: NDArray[Any], n_classes: int, sample_weight: Floats | None = None) -> Floats:
    """The observable side of Eq. 14: Ê[ẑ_i^j ẑ_i^k], (C, K, K).

    With A_i = 1(ŷ = i) and S = 1(ŷ ≠ 0), ẑ_i = 2 A_i - S: four matrix products per class instead of n · K² · C steps.
    """
    n_lfs = votes.shape[1]
    weight = np.ones(len(votes)) if sample_weight is None else sample_weight
    moments = np.zeros((n_classes, n_lfs, n_lfs))
    for rows in chunks(*votes.shape):
        spoken = (votes[rows] != ABSTAIN).astype(np.float64)
        weighted = weight[rows, None] * spoken
        both_spoken = spoken.T @ weighted
        for i in range(n_classes):
            positive = (votes[rows] == i).astype(np.float64)
            cross = positive.T @ weighted
            both_positive = positive.T @ (weight[rows, None] * positive)
            moments[i] += 4 * both_positive - 2 * (cross + cross.T) + both_spoken
    return np.asarray(moments / weight.sum())


def solve_triplets(moments: Floats, average: str = "mean") -> Floats:
    """Eq. 15: |Ê[ẑ^j z]| = sqrt|Ê[ẑ^j ẑ^k] Ê[ẑ^j ẑ^l] / Ê[ẑ^k ẑ^l]|, averaged over all pairs (k, l); (C, K).

    `average` is "mean" or "median". Pairs whose denominator is 0 say nothing and are left out; an LF without any pair
    gets NaN. The mean needs no loop over triplets: it is Σ_kl u_k W_kl u_l with u_k = sqrt|Ê[ẑ^j ẑ^k]| and
    W_kl = 1 / sqrt|Ê[ẑ^k ẑ^l]|.
    """
    n_lfs = moments.shape[1]
    if n_lfs < 3:
        raise InputError(
            f"triplets need at least 3 labeling functions, there are {n_lfs}; use variant 'dawid-skene' or 'majority', "
            "or settings with regularizer='none'"
        )
    off_diagonal = ~np.eye(n_lfs, dtype=bool)
    root = np.sqrt(np.abs(moments)) * off_diagonal  # (C, K, K)
    usable = (root > 1e-8) & off_diagonal  # a moment of 1e-16 is rounding, not evidence
    inverse = np.where(usable, 1.0 / np.where(usable, root, 1.0), 0.0)
    with np.errstate(invalid="ignore"):
        if average == "mean":
            total = np.einsum("cjk,ckl,cjl->cj", root, inverse, root, optimize=True)
            others = off_diagonal.astype(np.float64)
            count = np.einsum("jk,ckl,jl->cj", others, usable.astype(np.float64), others, optimize=True)
            return np.where(count > 0, total / np.where(count > 0, count, 1.0), np.nan)
        return np.stack([_triplet_medians(root[c], inverse[c], usable[c]) for c in range(len(moments))])


def _triplet_medians(root: Floats, inverse: Floats, usable: Bools) -> Floats:
    """The median over pairs (k, l) for every LF j of one class, (K,)."""
    n_lfs = len(root)
    medians = np.full(n_lfs, np.nan)
    for j in range(n_lfs):
        pairs = np.triu(usable, 1)
        pairs[j] = pairs[:, j] = False
        k, l = np.nonzero(pairs)  # noqa: E741  (the paper's index)
        if len(k):
            medians[j] = np.median(root[j, k] * root[j, l] * inverse[k, l])
    return medians


def recover_signs(moments: Floats, magnitudes: Floats) -> Floats:
    """The signs that Eq. 15 leaves open, (C, K), for `magnitudes` (C, K) = |E[ẑz]|.

    E[ẑ^j ẑ^k] = e_j e_k has rank one, so e is its leading eigenvector. Power iteration starts from "every LF is right",
    the usual assumption that picks one of the two orientations (Fu et al., 2020), and is rounded, so that votes which
    say nothing about the signs leave them at + instead of at the mercy of rounding errors.
    """
    own = np.nan_to_num(magnitudes)[:, :, None] ** 2 * np.eye(moments.shape[1])  # E[ẑ^j ẑ^j] has no E[ẑ^j z]² in it
    rank_one = np.where(np.eye(moments.shape[1], dtype=bool), own, moments)  # (C, K, K)
    leading = np.ones(magnitudes.shape)
    for _ in range(50):
        leading = np.einsum("cjk,ck->cj", rank_one, leading)
        largest = np.abs(leading).max(axis=1, keepdims=True)
        leading = (leading / np.where(largest > 0, largest, 1.0)).round(9)
    return np.where(leading < 0, -1.0, 1.0)


def signed_moments(moments: Floats, average: str = "mean") -> Floats:
    """Ê[ẑ_i^k z_i] by Eq. 15 with its sign, (K, C); NaN where no triplet says anything."""
    magnitudes = solve_triplets(moments, average)
    return np.asarray((magnitudes * recover_signs(moments, magnitudes)).T)


def moments_to_accuracy(moments: Floats, abstain_rate: Floats) -> Floats:
    """Eq. 13 solved for P(ẑ = z | ẑ ≠ 0) = (E[ẑz] + 1 - P(ẑ = 0)) / (2 (1 - P(ẑ = 0))); (K, C). NaN for a dead LF."""
    speaks = (1.0 - abstain_rate)[:, None]  # (K, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(speaks > 0, (moments + speaks) / (2 * speaks), np.nan))


def triplet_accuracy(
    votes: NDArray[Any], n_classes: int, average: str = "mean", sample_weight: Floats | None = None
) -> AccuracyEstimate:
    """â_i^k by Eq. 12-15, clipped to [0.01, 0.99]; `clipped` says how many estimates fell outside [0, 1]."""
    weight = np.ones(len(votes)) if sample_weight is None else sample_weight
    moments = vote_moments(votes, n_classes, weight)
    signed = signed_moments(moments, average)  # (K, C)
    abstain_rate = weight @ (votes == ABSTAIN) / weight.sum()
    accuracy = moments_to_accuracy(signed, abstain_rate)
    known = ~np.isnan(accuracy)
    outside = known & ((accuracy < 0) | (accuracy > 1))
    return AccuracyEstimate(np.clip(accuracy, 0.01, 0.99), None, float(outside.sum() / max(1, known.sum())))


def em_accuracy(data: VoteData) -> AccuracyEstimate:
    """â and b̂ read off Dawid-Skene tables with abstention as an outcome: right where it depends on the class."""
    fit = fit_dawid_skene(data)
    table = np.exp(fit.log_table[:, :, :-1]) * data.specialties[:, None, :]  # (K, C, C) P(ŷ = v | y)
    joint = table * fit.class_balance[:, None]  # P(y, ŷ = v) over [k, y, v]
    agree = np.einsum("kyy->ky", joint)  # (K, C)
    voted, is_class, spoken = joint.sum(1), joint.sum(2), joint.sum((1, 2))[:, None]
    wrong = (voted - agree) + (is_class - agree)
    with np.errstate(divide="ignore", invalid="ignore"):
        accuracy = np.where(spoken > 0, 1 - wrong / spoken, np.nan)
        class_accuracy = np.where(voted > 0, agree / voted, np.nan)
    return AccuracyEstimate(accuracy, class_accuracy)


def estimate_accuracy(method: str, data: VoteData) -> AccuracyEstimate:
    """The estimate of one of ESTIMATORS."""
    if method == "em":
        return em_accuracy(data)
    return triplet_accuracy(data.votes, data.n_classes, method.removeprefix("triplet-"), data.sample_weight)


@dataclass(frozen=True)
class AccuracyError:
    """An estimate against the truth, over the pairs both of them have."""

    mean_absolute: float
    root_mean_square: float
    correlation: float
    n_pairs: int


def accuracy_error(estimate: Floats, truth: Floats, where: Bools | None = None) -> AccuracyError:
    """How far `estimate` (K, C) is from `truth` (K, C), on the pairs of `where` (say, the specialties)."""
    both = ~np.isnan(estimate) & ~np.isnan(truth)
    if where is not None:
        both &= where
    a, b = estimate[both], truth[both]
    if not len(a):
        return AccuracyError(np.nan, np.nan, np.nan, 0)
    varies = len(a) > 1 and a.std() > 0 and b.std() > 0
    correlation = float(np.corrcoef(a, b)[0, 1]) if varies else np.nan
    return AccuracyError(float(np.abs(a - b).mean()), float(np.sqrt(((a - b) ** 2).mean())), correlation, len(a))

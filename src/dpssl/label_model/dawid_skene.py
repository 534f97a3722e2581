"""Step 2: Dawid & Skene (1979) with abstention as an outcome, fitted by semi-supervised EM with MAP smoothing.

Each LF has one row of outcome probabilities per true class: P(ŷ^k = v | y) for v in τ_k and for "abstain", which is
evidence like any other outcome (worth about 5 points of accuracy on votes of specialised LFs). Labelled rows keep
their label in every E step. The E step's statistics are sums over rows, so parts of a data set can be counted
separately and merged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import UNLABELED
from dpssl.errors import InputError
from dpssl.label_model.checks import VoteData, check_table_size
from dpssl.label_model.log_space import log_normalize
from dpssl.label_model.one_hot import OneHotVotes
from dpssl.label_model.votes import Bools, Floats, chunks

POSTERIOR_DECIMALS = 10  # rounding noise below this is dropped, so that the order of rows and LFs cannot grow from it
CACHED_VOTES = 1 << 27  # up to this many n · K the sparse form of the votes is kept between iterations


@dataclass(frozen=True)
class DawidSkeneSettings:
    """How the tables are smoothed and when EM stops."""

    abstention: str = "outcome"  # "outcome": abstaining is evidence; "ignored": only spoken votes count
    smoothing: float = 1.0  # pseudo-rows per LF and class, spread like the LF's own outcome rates
    prior_strength: float = 1.0  # pseudo-rows per class that pull the class prior to uniform
    max_iter: int = 200
    tol: float = 1e-6  # stop when the mean log-likelihood of a row gains less than this

    def __post_init__(self) -> None:
        if self.abstention not in ("outcome", "ignored"):
            raise InputError(f"abstention is {self.abstention!r}; choose 'outcome' or 'ignored'")
        if not self.smoothing > 0:
            raise InputError(
                f"smoothing is {self.smoothing}; give a number above 0, or log-probabilities become infinite"
            )


@dataclass(frozen=True)
class DawidSkeneFit:
    """Class prior and outcome tables."""

    class_balance: Floats  # (C,)
    log_table: Floats  # (K, C, C + 1) log P(ŷ^k = v | y); the last column is abstain
    converged: bool
    n_iter: int

    def predict_log_proba(self, votes: NDArray[Any], confidence: NDArray[Any] | None = None) -> Floats:
        """log P(y | ŷ) of every row, (n, C). `confidence` is not used by this model."""
        base, by_vote = _linear_form(self.class_balance, self.log_table)
        n_classes = len(self.class_balance)
        log_proba = np.empty((len(votes), n_classes))
        for rows in chunks(len(votes), max(votes.shape[1], n_classes)):
            log_proba[rows], _ = log_normalize(base + OneHotVotes(votes[rows], n_classes).sum_rows(by_vote))
        return log_proba


@dataclass(frozen=True)
class VoteStatistics:
    """Sufficient statistics of one E step; those of disjoint parts of the rows add up."""

    vote_mass: Floats  # (K, C, C) expected count of [k, y, ŷ]
    class_mass: Floats  # (C,) expected count of y
    log_likelihood: float

    def __add__(self, other: "VoteStatistics") -> "VoteStatistics":
        return VoteStatistics(
            self.vote_mass + other.vote_mass,
            self.class_mass + other.class_mass,
            self.log_likelihood + other.log_likelihood,
        )


def _linear_form(class_balance: Floats, log_table: Floats) -> tuple[Floats, Floats]:
    """log P(y, ŷ) = base[y] + Σ over spoken votes of by_vote[k·C + v, y]: all LFs abstain, then each vote corrects."""
    n_lfs, n_classes, _ = log_table.shape
    abstain = log_table[:, :, -1]  # (K, C)
    by_vote = (log_table[:, :, :-1] - abstain[:, :, None]).transpose(0, 2, 1)  # (K, C, C) as [k, ŷ, y]
    return np.log(class_balance) + abstain.sum(0), by_vote.reshape(n_lfs * n_classes, n_classes)


def expected_counts(
    votes: OneHotVotes, posterior: Floats, weight: Floats, log_likelihood: float = 0.0
) -> VoteStatistics:
    """Statistics of rows whose class probabilities are `posterior` (n, C)."""
    weighted = posterior * weight[:, None]
    n_classes = posterior.shape[1]
    by_vote = votes.sum_columns(weighted).reshape(votes.n_lfs, n_classes, n_classes)  # [k, ŷ, y]
    return VoteStatistics(by_vote.transpose(0, 2, 1), weighted.sum(0), log_likelihood)


def e_step(
    votes: OneHotVotes, y: NDArray[np.int64], weight: Floats, class_balance: Floats, log_table: Floats
) -> VoteStatistics:
    """Expected counts of some rows under the current parameters; labelled rows count for their label."""
    base, by_vote = _linear_form(class_balance, log_table)
    log_joint = base + votes.sum_rows(by_vote)  # (n, C)
    log_posterior, log_marginal = log_normalize(log_joint)
    posterior = np.exp(log_posterior).round(POSTERIOR_DECIMALS)
    labeled = np.flatnonzero(y != UNLABELED)
    posterior[labeled] = np.eye(len(class_balance))[y[labeled]]
    log_marginal[labeled] = log_joint[labeled, y[labeled]]
    return expected_counts(votes, posterior, weight, float(weight @ log_marginal))


def m_step(
    statistics: VoteStatistics,
    specialties: Bools,
    class_balance: Floats | None,
    settings: DawidSkeneSettings,
) -> tuple[Floats, Floats]:
    """Class prior (C,) and log table (K, C, C + 1) from expected counts; a given `class_balance` is kept."""
    spoken = statistics.vote_mass  # (K, C, C)
    mass = statistics.class_mass
    counts_silence = settings.abstention == "outcome"
    silent = np.maximum(mass - spoken.sum(2), 0.0) * counts_silence  # (K, C)
    counts = np.concatenate([spoken, silent[:, :, None]], axis=2)  # (K, C, C + 1)
    may_abstain = np.full((len(specialties), 1), counts_silence)
    allowed = np.concatenate([specialties, may_abstain], axis=1)  # (K, C + 1)
    # Smoothing pulls each class's row to the LF's overall rates: rare speech says little, not the opposite.
    overall = counts.sum(1) + allowed  # (K, C + 1)
    overall = overall / np.maximum(overall.sum(1, keepdims=True), 1e-300)
    smoothed = counts + settings.smoothing * overall[:, None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_table = np.log(smoothed / smoothed.sum(2, keepdims=True))
    log_table = np.where(allowed[:, None, :], log_table, 0.0)  # outcomes that never occur are never read
    if class_balance is None:
        class_balance = mass + settings.prior_strength
        class_balance = class_balance / class_balance.sum()
    return class_balance, log_table


def starting_posterior(votes: OneHotVotes, y: NDArray[np.int64], specialties: Bools) -> Floats:
    """Where EM starts: the specialist-normalised vote (uniform on rows without a vote) and the labels; (n, C)."""
    n_classes = specialties.shape[1]
    per_vote = np.eye(n_classes) / np.maximum(specialties.sum(0), 1)  # (C, C)
    shares = votes.sum_rows(np.tile(per_vote, (votes.n_lfs, 1)))
    total = shares.sum(1, keepdims=True)
    posterior = np.where(total > 0, shares / np.where(total > 0, total, 1.0), 1.0 / n_classes)
    labeled = np.flatnonzero(y != UNLABELED)
    posterior[labeled] = np.eye(n_classes)[y[labeled]]
    return posterior


def fit_dawid_skene(data: VoteData, settings: DawidSkeneSettings | None = None) -> DawidSkeneFit:
    """Fit by EM over bounded chunks of rows. Confidences are not used by this model."""
    settings = settings or DawidSkeneSettings()
    n_lfs, n_classes = data.specialties.shape
    check_table_size("dawid-skene", n_lfs, n_classes, n_classes + 1)
    y, weight, specialties = data.y, data.sample_weight, data.specialties
    parts = _Parts(data.votes, n_classes)
    start = _sum(
        expected_counts(part, starting_posterior(part, y[rows], specialties), weight[rows]) for rows, part in parts
    )
    prior, log_table = m_step(start, specialties, data.class_balance, settings)
    previous, n_iter, converged = -np.inf, 0, False
    while n_iter < settings.max_iter and not converged:
        statistics = _sum(e_step(part, y[rows], weight[rows], prior, log_table) for rows, part in parts)
        prior, log_table = m_step(statistics, specialties, data.class_balance, settings)
        converged = statistics.log_likelihood - previous < settings.tol * weight.sum()
        previous = statistics.log_likelihood
        n_iter += 1
    return DawidSkeneFit(prior, log_table, bool(converged), n_iter)


class _Parts:
    """Chunks of the votes in sparse form, kept between iterations when they fit into memory, made anew when not."""

    def __init__(self, votes: NDArray[Any], n_classes: int) -> None:
        self._votes, self._n_classes = votes, n_classes
        self._kept = list(self._make()) if votes.size <= CACHED_VOTES else None

    def _make(self) -> Iterator[tuple[slice, OneHotVotes]]:
        for rows in chunks(len(self._votes), max(self._votes.shape[1], self._n_classes)):
            yield rows, OneHotVotes(self._votes[rows], self._n_classes)

    def __iter__(self) -> Iterator[tuple[slice, OneHotVotes]]:
        return self._make() if self._kept is None else iter(self._kept)


def _sum(parts: Iterator[VoteStatistics]) -> VoteStatistics:
    total = next(parts)
    for part in parts:
        total = total + part
    return total

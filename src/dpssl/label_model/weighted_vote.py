"""Step 2, the default model where whole tables T_k(v | y) do not fit into memory: one accuracy per LF and class.

    P(y | k says v) = a_kv for y = v, and (1 - a_kv) · π_y / (1 - π_v) else
    log P(y | row)  = log π_y + Σ over votes for y of w_ky + const       w_kv = logit a_kv - logit π_v

A wrong vote tells nothing about which other class is true, so only the classes that a row names need a probability of
their own: time and memory grow with the votes given, not with K · C². An abstention is taken as absence. EM estimates a
and π; a_kv is shrunk to the LF's accuracy, that to the accuracy of all votes (see `vote_tables` for the constants).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN, UNLABELED
from dpssl.label_model.checks import VoteData
from dpssl.label_model.log_space import log_normalize
from dpssl.label_model.vote_tables import IDENTIFYING_VIEWS, POOLED_ACCURACY, PRIOR_ACCURACY, PRIOR_VOTES
from dpssl.label_model.votes import Floats, chunks

Ints = NDArray[np.int64]

MAX_ITERATIONS, TOL = 50, 1e-5  # tol: mean change of the probability that a vote is right
DECIMALS = 10  # rounding noise is dropped, so that the order of rows and LFs cannot grow from it
BOUNDS = (1e-6, 1 - 1e-6)  # of an accuracy or a class share inside a logarithm


@dataclass(frozen=True)
class WeightedVoteFit:
    """What each vote counts."""

    class_balance: Floats  # (C,) π
    vote_weight: Floats  # (K, C) w
    converged: bool
    n_iter: int

    def predict_log_proba(self, votes: NDArray[Any], confidence: NDArray[Any] | None = None) -> Floats:
        """log P(y | row), (n, C). `confidence` is not used by this model."""
        log_proba = np.empty((len(votes), len(self.class_balance)))
        for rows in chunks(len(votes), max(votes.shape[1], len(self.class_balance))):
            part = np.asarray(votes[rows])
            row, lf = np.nonzero(part != ABSTAIN)
            score = np.tile(np.log(self.class_balance), (len(part), 1))
            np.add.at(score, (row, part[row, lf]), self.vote_weight[lf, part[row, lf]])
            log_proba[rows], _ = log_normalize(score)
        return log_proba


def fit_weighted_vote(data: VoteData) -> WeightedVoteFit:
    """Fit by EM. Confidences are not used."""
    votes = _SpokenVotes.of(data)
    balance = np.full(data.n_classes, 1 / data.n_classes) if data.class_balance is None else data.class_balance
    right = votes.shares()
    weight = votes.weights(right, balance)
    n_iter, converged = 0, False
    while n_iter < MAX_ITERATIONS and not converged:
        before = right
        right, class_mass = votes.expect(weight, balance)
        if data.class_balance is None:
            balance = (class_mass + 1.0) / (class_mass + 1.0).sum()
        weight = votes.weights(right, balance)
        converged = float(votes.total(np.abs(right - before)[votes.pair])) <= TOL * float(votes.total(1.0))
        n_iter += 1
    table = np.zeros(data.specialties.shape)
    table[votes.lf, votes.label] = weight[votes.column]
    return WeightedVoteFit(balance, table, converged, n_iter)


@dataclass(frozen=True)
class _SpokenVotes:
    """The V votes of N covered rows, grouped twice: into (row, class) pairs and into (LF, class) columns."""

    lf: Ints  # (V,)
    label: Ints  # (V,)
    weight: Floats  # (V,) of the vote's row
    column: Ints  # (V,) which (LF, class) it belongs to
    pair: Ints  # (V,) which (row, class) it belongs to
    pair_class: Ints  # (P,)
    pair_row: Ints  # (P,) ascending
    row_start: Ints  # (N,) the first pair of each row
    row_weight: Floats  # (N,)
    row_label: Ints  # (N,) -1 where unlabelled

    @classmethod
    def of(cls, data: VoteData) -> "_SpokenVotes":
        rows, lfs = _spoken(data.votes)
        labels = np.asarray(data.votes[rows, lfs], dtype=np.int64)
        covered, row = np.unique(rows, return_inverse=True)
        pairs, pair = np.unique(row * data.n_classes + labels, return_inverse=True)
        pair_row, pair_class = np.divmod(pairs, data.n_classes)
        weight = data.sample_weight[covered]
        return cls(
            lf=lfs,
            label=labels,
            weight=weight[row],
            column=np.unique(lfs * data.n_classes + labels, return_inverse=True)[1],
            pair=pair,
            pair_class=pair_class,
            pair_row=pair_row,
            row_start=np.searchsorted(pair_row, np.arange(len(covered))),
            row_weight=weight,
            row_label=data.y[covered],
        )

    def total(self, values: Floats | float) -> float:
        return float((self.weight * values).sum())

    def shares(self) -> Floats:
        """Each class's share of its row's votes, (P,): where EM starts."""
        count = np.bincount(self.pair).astype(np.float64)
        return self._known(count / np.bincount(self.pair_row, count)[self.pair_row])

    def weights(self, right: Floats, balance: Floats) -> Floats:
        """M step: w by column. `right` (P,) is the probability of a row's class."""
        mass = np.bincount(self.column, self.weight * right[self.pair])
        count = np.bincount(self.column, self.weight)
        lf_mass, lf_count = (np.bincount(self.lf, values) for values in (self.weight * right[self.pair], self.weight))
        pooled = np.clip((mass.sum() + PRIOR_VOTES * PRIOR_ACCURACY) / (count.sum() + PRIOR_VOTES), *POOLED_ACCURACY)
        prior_share = max(0.0, IDENTIFYING_VIEWS / self._views() - 1.0)
        lf_prior = PRIOR_VOTES + lf_count * prior_share
        lf_accuracy = (lf_mass + lf_prior * pooled) / (lf_count + lf_prior)
        lf, label = np.zeros_like(count, dtype=np.int64), np.zeros_like(count, dtype=np.int64)
        lf[self.column], label[self.column] = self.lf, self.label
        prior = PRIOR_VOTES + count * prior_share
        accuracy = (mass + prior * lf_accuracy[lf]) / (count + prior)
        return _logit(accuracy) - _logit(balance[label])

    def expect(self, weight: Floats, balance: Floats) -> tuple[Floats, Floats]:
        """E step: the probability of each pair's class (P,), and the expected weight of each class (C,)."""
        score = np.log(balance[self.pair_class]) + np.bincount(self.pair, weight[self.column])
        unnamed = np.maximum(1.0 - np.bincount(self.pair_row, balance[self.pair_class]), BOUNDS[0])  # (N,) share
        largest = np.maximum(np.maximum.reduceat(score, self.row_start), np.log(unnamed))
        likelihood = np.exp(score - largest[self.pair_row])
        rest = unnamed * np.exp(-largest)
        total = np.bincount(self.pair_row, likelihood) + rest
        right = self._known((likelihood / total[self.pair_row]).round(DECIMALS))
        rest = np.where(self.row_label == UNLABELED, self.row_weight * rest / total, 0.0) / unnamed  # (N,) per share
        class_mass = np.bincount(
            self.pair_class, self.row_weight[self.pair_row] * right - rest[self.pair_row] * balance[self.pair_class],
            len(balance),
        )  # fmt: skip
        return right, np.maximum(class_mass + rest.sum() * balance, 0.0)

    def _known(self, right: Floats) -> Floats:
        label = self.row_label[self.pair_row]
        return np.where(label == UNLABELED, right, label == self.pair_class)

    def _views(self) -> float:
        """How many votes a vote meets on its row, itself included."""
        per_row = np.bincount(self.pair_row, np.bincount(self.pair))
        return float(self.row_weight @ np.square(per_row)) / max(float(self.row_weight @ per_row), BOUNDS[0])


def _spoken(votes: NDArray[Any]) -> tuple[Ints, Ints]:
    """Row and LF of every vote."""
    parts = []
    for rows in chunks(*votes.shape):
        row, lf = np.nonzero(np.asarray(votes[rows]) != ABSTAIN)
        parts.append((row + rows.start, lf))
    return np.concatenate([row for row, _ in parts]), np.concatenate([lf for _, lf in parts])


def _logit(probability: Floats) -> Floats:
    clipped = np.clip(probability, *BOUNDS)
    return np.asarray(np.log(clipped) - np.log1p(-clipped))

"""Step 2's simple models: majority vote, specialist-normalised vote, and FlyingSquid's one-versus-all triplets."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.label_model.accuracy import signed_moments, vote_moments
from dpssl.label_model.checks import VoteData, check_table_size
from dpssl.label_model.log_space import log_normalize
from dpssl.label_model.one_hot import OneHotVotes
from dpssl.label_model.votes import Floats, chunks


@dataclass(frozen=True)
class VoteShareFit:
    """P(y) ∝ Σ_k vote weight · 1(ŷ^k = y): a class's share of the row's votes."""

    class_balance: Floats  # (C,)
    vote_weight: Floats  # (C,) what one vote for the class counts
    converged: bool = True
    n_iter: int = 1

    def predict_log_proba(self, votes: NDArray[Any], confidence: NDArray[Any] | None = None) -> Floats:
        """log of each class's share of the votes (n, C); a vote counts its confidence where that is given."""
        shares = vote_shares(votes, self.vote_weight, confidence)
        with np.errstate(divide="ignore"):
            return np.where(shares.sum(1, keepdims=True) > 0, np.log(shares), np.log(self.class_balance))


def vote_shares(votes: NDArray[Any], vote_weight: Floats, confidence: NDArray[Any] | None = None) -> Floats:
    """Share of each class in the weighted votes of a row, (n, C); all zero where nobody votes."""
    n_classes = len(vote_weight)
    shares = np.zeros((len(votes), n_classes))
    for lf in range(votes.shape[1]):
        rows = np.flatnonzero(votes[:, lf] != ABSTAIN)
        labels = votes[rows, lf]
        shares[rows, labels] += vote_weight[labels] * (1.0 if confidence is None else confidence[rows, lf])
    total = shares.sum(1, keepdims=True)
    return np.asarray(shares / np.where(total > 0, total, 1.0))


def fit_majority(data: VoteData) -> VoteShareFit:
    """Majority vote: every vote counts the same."""
    return _fit_vote_share(data, np.ones(data.n_classes))


def fit_specialist_vote(data: VoteData) -> VoteShareFit:
    """Majority vote divided by the number of LFs that may vote for the class: one line, and hard to beat."""
    return _fit_vote_share(data, 1.0 / np.maximum(data.specialties.sum(0), 1))


def _fit_vote_share(data: VoteData, vote_weight: Floats) -> VoteShareFit:
    """Nothing is learnt; rows without a vote get the given class balance, or the uniform one."""
    return VoteShareFit(_given_or_uniform(data), vote_weight)


def _given_or_uniform(data: VoteData) -> Floats:
    return np.full(data.n_classes, 1.0 / data.n_classes) if data.class_balance is None else data.class_balance


@dataclass(frozen=True)
class TripletFit:
    """FlyingSquid (Fu et al., 2020), one task per class against the rest: P(z_i = 1 | ẑ_i), then normalised over i.

    In task i an LF is right with P(ẑ = z) = (s + e) / 2 and wrong with (s - e) / 2, where s is its speak rate and
    e = E[ẑz], whatever z is; so a vote adds ±log((s + e) / (s - e)) to the log-odds and an abstention adds nothing.
    """

    class_balance: Floats  # (C,)
    log_odds: Floats  # (K, C) what a vote of +1 adds in task i
    converged: bool = True
    n_iter: int = 1

    def predict_log_proba(self, votes: NDArray[Any], confidence: NDArray[Any] | None = None) -> Floats:
        """Normalised log P(z_i = 1 | ẑ_i), (n, C). `confidence` is not used by this model."""
        n_lfs, n_classes = self.log_odds.shape
        # A vote v adds log_odds[k, v] in its own task and subtracts log_odds[k, i] in every other task i.
        own = 2 * np.eye(n_classes) * self.log_odds[:, None, :]  # (K, C, C) as [k, v, i]
        by_vote = (own - self.log_odds[:, None, :]).reshape(n_lfs * n_classes, n_classes)
        prior_odds = np.log(self.class_balance) - np.log1p(-self.class_balance)
        log_proba = np.empty((len(votes), n_classes))
        for rows in chunks(len(votes), max(votes.shape[1], n_classes)):
            odds = prior_odds + OneHotVotes(votes[rows], n_classes).sum_rows(by_vote)
            log_proba[rows], _ = log_normalize(-np.logaddexp(0.0, -odds))
        return log_proba


def fit_triplets(data: VoteData) -> TripletFit:
    """FlyingSquid's closed form, vectorised: Eq. 12-15 with the mean over triplets. Labels are not used."""
    votes, weight = data.votes, data.sample_weight
    n_lfs, n_classes = data.specialties.shape
    check_table_size("triplet", n_lfs, n_classes, max(n_lfs, n_classes))
    moments = vote_moments(votes, data.n_classes, weight)
    e = np.nan_to_num(signed_moments(moments))  # (K, C)
    speaks = (weight @ (votes != ABSTAIN) / weight.sum())[:, None]  # (K, 1)
    e = np.clip(e, -0.98 * speaks, 0.98 * speaks)  # an estimate beyond its range would be an infinite log-odds
    live = speaks > 0
    log_odds = np.where(live, np.log(np.where(live, speaks + e, 1.0)) - np.log(np.where(live, speaks - e, 1.0)), 0.0)
    return TripletFit(_given_or_uniform(data), log_odds)

"""Step 2, the default model: each LF's table T_k(v | y) and what a vote or a silence says about the class.

The tables are built from what is easiest to know a priori, how often a vote is right:

    P(y | k says v)  = (N_kv(y) + λ_kv · m_v(y)) / (N_kv + λ_kv)       N_kv(y): how many of these votes fall on class y
    m_v(y)           = ā for y = v, and (1 - ā) · π_y / (1 - π_v) else  ā: the mean accuracy of all votes
    T_k(v | y)       = r_kv · P(y | k says v) / π_y                    r_kv: the vote's share of the rows
    T_k(abstain | y) = 1 - Σ_v T_k(v | y)

With λ → ∞ all votes have one accuracy: majority vote. λ_kv = λ₀ + N_kv · max(0, 3/d - 1), where d is the number of
votes that a vote meets on its row, itself included: it takes three views to identify a table (Kruskal 1977), so with
fewer the prior keeps its share however many rows there are (labeling functions that speak rarely and for one class).

A row's evidence is Σ_k β_k [log P(v_k | speaks, y) + κ log P(speaks or not | y)]: κ = 1 takes an abstention as
evidence, κ = 0 as mere absence (crowd workers), β discounts copies.

| symbol | argument | shape |
| --- | --- | --- |
| (k, v) pairs that occur, N_kv | `columns` | (m,) |
| N_kv(y) | `vote_mass` | (m, C) |
| λ_kv | `prior_votes` | (m,) |
| T_k(v, y), T_k(abstain, y), π | `Tables.says`, `silent`, `balance` | (m, C), (K, C), (C,) |
| κ, β | `absence_weight`, `lf_weight` | scalar, (K,) |
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.label_model.difficulty import Difficulty, SharedCounts, expected_counts, log_normalizers, update_difficulty
from dpssl.label_model.votes import Floats

Ints = NDArray[np.int64]

PRIOR_VOTES = 10.0  # λ₀, in votes
PRIOR_ACCURACY = 0.7  # where ā starts, worth PRIOR_VOTES votes
POOLED_ACCURACY = (0.6, 0.98)  # bounds of ā: below, EM may explain the votes by classes nobody names
IDENTIFYING_VIEWS = 3.0
LARGEST_SPEAKING = 0.98  # of Σ_v T_k(v | y), so that a silence never proves anything
SMALLEST = 1e-12


@dataclass(frozen=True)
class Columns:
    """The (LF, class) pairs that occur among the votes. LF k's classes are numbered 0, 1, …: its codes."""

    code: Ints  # (K, C) the code of each class, -1 where the LF never votes for it
    n_codes: int  # the most classes that one LF votes for; LF k owns columns k · n_codes …
    lf: Ints  # (m,)
    vote: Ints  # (m,) the class; -1 in a column that no vote uses
    count: Floats  # (m,) weighted votes

    @property
    def used(self) -> Ints:
        """Columns with votes."""
        return np.flatnonzero(self.vote >= 0)

    def sum_per_lf(self, values: Floats) -> Floats:
        """(m, C) -> (K, C)."""
        total: Floats = values.reshape(len(self.code), self.n_codes, -1).sum(1)
        return total


def find_columns(votes: NDArray[Any], weight: Floats, n_classes: int) -> Columns:
    """Columns of the votes (n, K)."""
    n_lfs = votes.shape[1]
    count = np.zeros((n_lfs, n_classes))
    for k in range(n_lfs):
        count[k] = np.bincount(votes[:, k].astype(np.int64) + 1, weight, n_classes + 1)[1:]
    return columns_from_counts(count)


def columns_from_counts(count: Floats) -> Columns:
    """Columns from the weighted number of votes by LF and class, (K, C)."""
    used = count > 0
    code = np.where(used, used.cumsum(1) - 1, -1)
    n_codes = max(1, int(used.sum(1).max()))
    vote = np.full((len(count), n_codes), -1)
    by_code = np.zeros((len(count), n_codes))
    lf, classes = np.nonzero(used)
    vote[lf, code[lf, classes]] = classes
    by_code[lf, code[lf, classes]] = count[lf, classes]
    return Columns(code, n_codes, np.repeat(np.arange(len(count)), n_codes), vote.ravel(), by_code.ravel())


@dataclass(frozen=True)
class Tables:
    """All that EM estimates."""

    balance: Floats  # (C,)
    says: Floats  # (m, C)
    silent: Floats  # (K, C)
    difficulty: Difficulty


@dataclass(frozen=True)
class Counts:
    """Sufficient statistics of an E step; those of disjoint rows add up, so that workers can share a fit."""

    vote_mass: Floats  # (m, C)
    class_mass: Floats  # (C,)
    covered_mass: Floats  # (C,) over the rows with a vote
    shared: SharedCounts
    log_likelihood: float

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.vote_mass + other.vote_mass,
            self.class_mass + other.class_mass,
            self.covered_mass + other.covered_mass,
            self.shared + other.shared,
            self.log_likelihood + other.log_likelihood,
        )


def prior_votes(columns: Columns, views: float) -> Floats:
    """λ_kv, (m,); `views` is d."""
    return PRIOR_VOTES + columns.count * max(0.0, IDENTIFYING_VIEWS / max(views, 1.0) - 1.0)


def truth_given_vote(vote_mass: Floats, columns: Columns, balance: Floats, prior_votes: Floats) -> Floats:
    """P(y | k says v), (m, C)."""
    used = columns.used
    right = vote_mass[used, columns.vote[used]].sum() + PRIOR_VOTES * PRIOR_ACCURACY
    accuracy = np.clip(right / (columns.count.sum() + PRIOR_VOTES), *POOLED_ACCURACY)
    rest = (1 - accuracy) / np.maximum(1 - balance[columns.vote], SMALLEST)  # (m,)
    prior = rest[:, None] * balance
    prior[used, columns.vote[used]] = accuracy
    smoothed: Floats = (vote_mass + prior_votes[:, None] * prior) / (columns.count + prior_votes)[:, None]
    return smoothed


def update_tables(
    counts: Counts,
    before: Tables,
    columns: Columns,
    prior_votes: Floats,
    class_balance: Floats | None,
    lf_weight: Floats,
    keep_tables: bool = False,
) -> Tables:
    """M step. π comes from the rows with votes, unless `class_balance` is given.

    keep_tables: with a shared difficulty, learn that alone and leave T as it is.
    """
    balance = counts.covered_mass + 1.0 if class_balance is None else np.maximum(class_balance, SMALLEST)
    balance = balance / balance.sum()
    share = truth_given_vote(counts.vote_mass, columns, balance, prior_votes)
    joint = columns.count[:, None] * share / counts.class_mass.sum() / balance  # (m, C) wanted T, were there no boosts
    if before.difficulty.look_alikes.shape[1] == 0:
        too_much = np.maximum(columns.sum_per_lf(joint) / LARGEST_SPEAKING, 1.0)
        says = joint / too_much[columns.lf]
        silent = 1.0 - columns.sum_per_lf(says)
        difficulty = update_difficulty(before.difficulty, counts.shared, None)
        return Tables(balance, np.maximum(says, SMALLEST), silent, difficulty)
    learnt = _rescale(counts, before, columns, joint * counts.class_mass, balance, lf_weight)
    return replace(learnt, says=before.says, silent=before.silent) if keep_tables else learnt


def _rescale(
    counts: Counts, before: Tables, columns: Columns, wanted: Floats, balance: Floats, lf_weight: Floats
) -> Tables:
    """With boosts no table has a closed form: scale each entry by wanted / expected votes (iterative scaling)."""
    difficulty, lfs, classes = before.difficulty, *np.ogrid[: len(columns.code), : len(balance)]
    parts = table_parts(before, columns)
    log_normalizer = log_normalizers(difficulty, *parts)
    expected = expected_counts(difficulty, counts.shared.state_mass, *parts, log_normalizer, lf_weight)
    factor = np.repeat(expected.other[:, None, :], columns.n_codes + 1, axis=1)  # (K, codes + 1, C); code -1 is spare
    factor[lfs[:, :, None], columns.code[:, difficulty.look_alikes], classes[:, :, None]] = expected.look_alike
    factor[lfs, columns.code, classes] = expected.own
    factor = factor[:, :-1].reshape(wanted.shape)
    silences = counts.class_mass - columns.sum_per_lf(wanted)
    silences = np.maximum(silences, (1 - LARGEST_SPEAKING) * counts.class_mass)
    tenth = 1e-3  # keeps ratios of two nearly empty counts at one
    says = before.says * (wanted + tenth) / (before.says * factor + tenth)
    silent = before.silent * (silences + tenth) / (before.silent * expected.silent + tenth)
    total = columns.sum_per_lf(says) + silent
    says = np.maximum(says / total[columns.lf], SMALLEST)
    return Tables(balance, says, silent / total, update_difficulty(difficulty, counts.shared, expected.by_role))


def table_parts(tables: Tables, columns: Columns) -> tuple[Floats, Floats, Floats]:
    """T_k(y | y) (K, C), T_k(ℓ | y) (K, C, M) and Σ_v T_k(v | y) (K, C)."""
    n_lfs, n_classes = columns.code.shape
    says = tables.says.reshape(n_lfs, columns.n_codes, n_classes)
    says = np.concatenate([says, np.zeros((n_lfs, 1, n_classes))], axis=1)  # code -1: the LF never says it
    lfs, classes = np.ogrid[:n_lfs, :n_classes]
    own = says[lfs, columns.code, classes]
    alike = says[lfs[:, :, None], columns.code[:, tables.difficulty.look_alikes], classes[:, :, None]]
    return own, alike, 1.0 - tables.silent


def evidence_weights(
    tables: Tables, columns: Columns, absence_weight: float, lf_weight: Floats
) -> tuple[Floats, Floats]:
    """A row's evidence is silence (C,) + Σ over its votes of by_vote[(k, v)]; by_vote is (m, C)."""
    log_speaks = np.log(np.maximum(1.0 - tables.silent, SMALLEST))  # (K, C)
    log_silent = np.log(tables.silent)
    correction = (absence_weight * (log_speaks - log_silent) - log_speaks)[columns.lf]
    by_vote = lf_weight[columns.lf, None] * (np.log(tables.says) + correction)
    return by_vote, absence_weight * (lf_weight @ log_silent)

"""Step 2, the default model: what all LFs share on a row besides its class — how hard it is and what it looks like.

LFs on one backbone, or people looking at one picture, err together. Given the class alone their votes are dependent
and a model that multiplies them is over-confident. Here every row has a difficulty h (H levels) and a look-alike class
ℓ ≠ y, and given (y, ℓ, h) the votes are independent:

    P(v_k | y, ℓ, h)  = T_k(v_k | y) · e^{b_h[role(v_k)]} / Z_k(y, ℓ, h)
    P(s_k | v_k, y)   = c(s_k | v_k = y or not)^γ                s_k: how confident LF k is, in S steps (`confidence`)
    P(y, ℓ, h)        = π_y · a(ℓ | y) · w_h                     role: the truth (v = y), the look-alike (v = ℓ), other

T_k is the LF's own table (abstaining is an outcome and has b = 0); b, c and w are shared by all LFs, so that they are
learnt from all votes and cannot bend to one class: free components per class fit better and label worse.

| symbol | argument | shape |
| --- | --- | --- |
| b_h[role] | `boost` | (H, 3) |
| γ log c(s, role) | `log_step` | (3, S) |
| w_h | `level_share` | (H,) |
| ℓ, a(ℓ, y) | `look_alikes`, `look_alike_share` | (C, M), the M likeliest per class |

The row's part of the log joint is a sum of a term in (y, h) and one in (ℓ, h), so summing over ℓ is a matrix product:
the cost per row is C · H exponentials, not C² · H. H = 1 with b = 0 and M = 0 is the model without shared difficulty.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpssl.label_model.class_votes import ClassVotes
from dpssl.label_model.votes import Floats

Ints = NDArray[np.int64]

TRUTH, LOOK_ALIKE, OTHER = 0, 1, 2
N_LEVELS = 5
MOST_CLASSES = 128  # beyond, C² states per row cost more than they gave
MOST_ENTRIES = 1 << 22  # of the (K, C, M, H) normalisers; limits M
EASIEST_BOOST = np.array([1.7, -0.5, -3.5])  # where EM starts: on easy rows the truth is said more, the rest hardly
HARDEST_BOOST = np.array([-2.0, 3.9, 0.9])  # on hard rows the look-alike takes the truth's votes
LARGEST_BOOST = 5.0  # beyond e^5 a level only explains rows away (seen on votes of near-copies)
BOOST_PRIOR = 0.01  # pseudo-votes per row that hold each boost near its start
STEP_PRIOR = 10.0  # pseudo-votes that hold the steps of each role at their overall shares
STEP_TRUST = 0.5  # γ: confidences on one row depend on each other even after the row's mean is taken off
TINY = 1e-300


@dataclass(frozen=True)
class Difficulty:
    """Parameters shared by all LFs; see the module's table of symbols."""

    boost: Floats  # (H, 3)
    log_step: Floats  # (3, S)
    level_share: Floats  # (H,)
    look_alikes: Ints  # (C, M)
    look_alike_share: Floats  # (C, M)


@dataclass(frozen=True)
class SharedCounts:
    """Expected counts of the shared states; those of disjoint rows add up."""

    state_mass: Floats  # (C, M, H) rows by class, look-alike and level; (C, 1, H) when M = 0
    role_mass: Floats  # (H, 3, S) votes by level, role and step of confidence

    def __add__(self, other: "SharedCounts") -> "SharedCounts":
        return SharedCounts(self.state_mass + other.state_mass, self.role_mass + other.role_mass)


@dataclass(frozen=True)
class ExpectedCounts:
    """What T_k(v | y) is multiplied with to give the expected number of votes, by role; and the votes by level."""

    own: Floats  # (K, C)
    look_alike: Floats  # (K, C, M)
    other: Floats  # (K, C)
    silent: Floats  # (K, C)
    by_role: Floats  # (H, 3) expected votes of all LFs, weighted by β


def no_difficulty(n_classes: int, n_steps: int) -> Difficulty:
    """One level, no look-alikes: the votes are independent given the class."""
    return Difficulty(
        boost=np.zeros((1, 3)),
        log_step=np.zeros((3, n_steps)),
        level_share=np.ones(1),
        look_alikes=np.zeros((n_classes, 0), dtype=np.int64),
        look_alike_share=np.zeros((n_classes, 0)),
    )


def starting_difficulty(vote_rate: Floats, log_step: Floats, n_lfs: int) -> Difficulty:
    """Where EM starts: levels spread evenly from easy to hard, look-alikes by how often their votes fall on a class.

    vote_rate (C, C): expected number of votes for v (column) on a row of class y; log_step (3, S).
    """
    n_classes = len(vote_rate)
    confusable = np.where(np.eye(n_classes, dtype=bool), -1.0, vote_rate.round(9))
    n_alike = min(MOST_ENTRIES // (n_lfs * n_classes * N_LEVELS), n_classes - 1)
    look_alikes = np.argsort(-confusable, axis=1, kind="stable")[:, :n_alike]  # (C, M)
    return Difficulty(
        boost=_starting_boost(),
        log_step=log_step,
        level_share=np.full(N_LEVELS, 1 / N_LEVELS),
        look_alikes=look_alikes,
        look_alike_share=np.full((n_classes, n_alike), 1 / n_alike),
    )


def affords_difficulty(n_classes: int, n_lfs: int) -> bool:
    """Is the shared state small enough to sum over?"""
    return n_classes <= MOST_CLASSES and n_lfs * n_classes * N_LEVELS <= MOST_ENTRIES


def log_normalizers(difficulty: Difficulty, own: Floats, alike: Floats, spoken: Floats) -> Floats:
    """log Z_k(y, ℓ, h), (K, C, M, H): the boosts change how much each LF says in total.

    own (K, C): T_k(y | y); alike (K, C, M): T_k(ℓ | y); spoken (K, C): all of Σ_v T_k(v | y).
    """
    truth, look_alike, other = np.exp(difficulty.boost).T[:, None, None, None, :]  # each (1, 1, 1, H)
    own, spoken, alike = own[:, :, None, None], spoken[:, :, None, None], alike[:, :, :, None]
    return np.asarray(np.log1p(own * (truth - 1) + alike * (look_alike - 1) + (spoken - own - alike) * (other - 1)))


def log_states(difficulty: Difficulty, log_balance: Floats, log_normalizer: Floats) -> Floats:
    """log P(y, ℓ, h) - Σ_k log Z_k, (C, M, H); log π_y alone, (C, 1, 1), without look-alikes.

    log_normalizer (C, M, H) is summed over the LFs.
    """
    if difficulty.look_alikes.shape[1] == 0:
        return log_balance[:, None, None]
    log_share = np.log(difficulty.look_alike_share)[:, :, None] + np.log(difficulty.level_share)
    return np.asarray(log_balance[:, None, None] + log_share - log_normalizer)


@dataclass(frozen=True)
class RowStates:
    """The posterior of some rows."""

    joint: Floats  # (H, n, C) weight · P(h, y | row)
    alikes: "list[_Alikes]"  # per level; empty without look-alikes
    log_likelihood: Floats  # (n,)


def infer_states(
    difficulty: Difficulty, states: Floats, evidence: Floats, votes: ClassVotes, y: Ints, weight: Floats
) -> RowStates:
    """E step for some rows.

    states: `log_states`; evidence (n, C): Σ_k log T_k(v_k | y); y (n,): the known class or -1; weight (n,).
    Boosts only touch classes with votes, so one dense exponential serves all levels.
    """
    n_levels, has_alikes = len(difficulty.level_share), difficulty.look_alikes.shape[1] > 0
    per_vote = difficulty.boost[:, :, None] + difficulty.log_step  # (H, 3, S)
    gain = per_vote - per_vote[:, [OTHER]]  # (H, 3, S) over a vote for "other"
    bound = np.maximum(gain.max(2), 0.0)[:, :, None] * votes.most  # (H, 3, n) at least the largest gain of a class
    evidence = _only_known(evidence, y)
    highest = evidence.max(1)  # (n,)
    as_other = votes.total @ per_vote[:, OTHER].T  # (n, H)
    scale = (as_other.T + bound[:, TRUTH] + bound[:, LOOK_ALIKE]).max(0) + states.max()  # (n,)
    relative = evidence - highest[:, None]  # (n, C)
    likelihood, at_votes = np.exp(relative), relative.ravel()[votes.cells]  # (n, C), (pairs,)
    joint = np.empty((n_levels, *evidence.shape))
    alikes = []
    for h in range(n_levels):
        log_level = as_other[:, h] + bound[h, LOOK_ALIKE] + states[:, :, h].max() - scale  # (n,)
        np.multiply(likelihood, np.exp(log_level)[:, None], out=joint[h])
        # Hundreds of votes for a class: e^gain alone overflows where e^level underflows.
        joint[h].ravel()[votes.cells] = np.exp(at_votes + log_level[votes.rows] + votes.count @ gain[h, TRUTH])
        if has_alikes:
            alikes.append(_Alikes.of(difficulty, states[:, :, h], votes, gain[h, LOOK_ALIKE], bound[h, LOOK_ALIKE]))
            joint[h] *= alikes[h].summed
        else:
            joint[h] *= np.exp(states[:, 0, h] - states[:, 0, h].max())
    total = np.maximum(joint.sum(0).sum(1), TINY)  # (n,)
    joint *= (weight / total)[:, None]  # (H, n, C) expected weight of every (h, y)
    return RowStates(joint, alikes, np.log(total) + highest + scale)


def count_states(difficulty: Difficulty, votes: ClassVotes, inferred: RowStates) -> SharedCounts:
    """Expected counts of the shared states."""
    n_levels, _, n_classes = inferred.joint.shape
    state_mass = np.empty((n_classes, max(difficulty.look_alikes.shape[1], 1), n_levels))
    role_mass = np.zeros((n_levels, 3, votes.count.shape[1]))
    for h, joint in enumerate(inferred.joint):
        role_mass[h, TRUTH] = joint.ravel()[votes.cells] @ votes.count
        if inferred.alikes:
            state_mass[:, :, h], role_mass[h, LOOK_ALIKE] = inferred.alikes[h].count(difficulty, votes, joint)
        else:
            state_mass[:, 0, h] = joint.sum(0)
        role_mass[h, OTHER] = joint.sum(1) @ votes.total - role_mass[h, TRUTH] - role_mass[h, LOOK_ALIKE]
    return SharedCounts(state_mass, np.maximum(role_mass, 0.0))


def _only_known(evidence: Floats, y: Ints) -> Floats:
    known = np.flatnonzero(y >= 0)
    if len(known):
        evidence = evidence.copy()
        evidence[known] += np.where(np.arange(evidence.shape[1]) == y[known, None], 0.0, -np.inf)
    return evidence


@dataclass(frozen=True)
class _Alikes:
    """Σ over the look-alikes at one level: e^{gain} is 1 for classes without votes, the rest is a sparse product."""

    matrix: Floats  # (C, C) P(ℓ, h, …) by y and ℓ, relative to its largest
    weight: Floats  # (pairs,) e^{gain - bound}
    unvoted: Floats  # (n,) e^{-bound}
    summed: Floats  # (n, C) by y

    @classmethod
    def of(cls, difficulty: Difficulty, states: Floats, votes: ClassVotes, gain: Floats, bound: Floats) -> "_Alikes":
        matrix = np.zeros((len(states), len(states)))
        np.put_along_axis(matrix, difficulty.look_alikes, np.exp(states - states.max()), axis=1)
        weight, unvoted = np.exp(votes.count @ gain - bound[votes.rows]), np.exp(-bound)
        summed = votes.times(weight - unvoted[votes.rows], matrix.T) + np.outer(unvoted, matrix.sum(1))
        return cls(matrix, weight, unvoted, summed + TINY)

    def count(self, difficulty: Difficulty, votes: ClassVotes, joint: Floats) -> tuple[Floats, Floats]:
        """Expected rows by class and look-alike (C, M), and votes for the look-alike by step (S,)."""
        ratio = joint / self.summed  # (n, C)
        pairs = votes.transposed_times(self.weight - self.unvoted[votes.rows], ratio).T  # (C, C) by y, ℓ
        pairs = self.matrix * (pairs + (self.unvoted @ ratio)[:, None])
        by_step = [
            float((self.matrix.T * votes.transposed_times(self.weight * count, ratio)).sum()) for count in votes.count.T
        ]
        return np.take_along_axis(pairs, difficulty.look_alikes, axis=1), np.array(by_step)


def expected_counts(
    difficulty: Difficulty,
    state_mass: Floats,
    own: Floats,
    alike: Floats,
    spoken: Floats,
    log_normalizer: Floats,
    lf_weight: Floats,
) -> "ExpectedCounts":
    """How often the current tables expect each outcome, to compare with the counts; log_normalizer is (K, C, M, H)."""
    share = state_mass * np.exp(-log_normalizer)  # (K, C, M, H) expected rows over Z
    truth, look_alike, other = np.exp(difficulty.boost).T  # each (H,)
    by_level = share.sum(2)  # (K, C, H)
    own_factor = by_level @ truth
    silent_factor = by_level.sum(2)
    alike_other = share @ other  # (K, C, M)
    other_factor = alike_other.sum(2)  # (K, C)
    alike_factor = other_factor[:, :, None] - alike_other + share @ look_alike
    own_votes = np.einsum("k,kch,kc->h", lf_weight, by_level, own)
    alike_votes = np.einsum("k,kcmh,kcm->h", lf_weight, share, alike)
    other_votes = np.einsum("k,kch,kc->h", lf_weight, by_level, spoken - own) - alike_votes
    by_role = np.stack([own_votes * truth, alike_votes * look_alike, other_votes * other], axis=1)  # (H, 3)
    return ExpectedCounts(own_factor, alike_factor, other_factor, silent_factor, by_role)


def update_difficulty(difficulty: Difficulty, counts: SharedCounts, expected_roles: Floats | None) -> Difficulty:
    """M step: each boost moves by log(counted / expected votes), held by a weak pull to its start.

    expected_roles (H, 3); None when there are no boosts.
    """
    log_step = _step_evidence(counts.role_mass)
    if expected_roles is None:
        return replace(difficulty, log_step=log_step)
    counted = counts.role_mass.sum(2)  # (H, 3)
    pull = BOOST_PRIOR * counts.state_mass.sum()
    moved = difficulty.boost + np.log((counted + 1.0) / (expected_roles + 1.0))
    boost = (counted * moved + pull * _starting_boost()) / (counted + pull)
    level_mass = counts.state_mass.sum((0, 1)) + 1.0
    alike_mass = counts.state_mass.sum(2) + 0.5  # (C, M)
    return Difficulty(
        boost=np.clip(boost, -LARGEST_BOOST, LARGEST_BOOST),
        log_step=log_step,
        level_share=level_mass / level_mass.sum(),
        look_alikes=difficulty.look_alikes,
        look_alike_share=alike_mass / alike_mass.sum(1, keepdims=True),
    )


def _starting_boost() -> Floats:
    mix = np.linspace(0.0, 1.0, N_LEVELS)[:, None]
    return np.asarray((1 - mix) * EASIEST_BOOST + mix * HARDEST_BOOST)


def _step_evidence(role_mass: Floats) -> Floats:
    """γ log c(s | role), (3, S), with c shrunk to the steps' overall shares; all wrong votes have one c."""
    by_role = role_mass.sum(0)  # (3, S)
    mass = np.stack([by_role[TRUTH], by_role[LOOK_ALIKE] + by_role[OTHER]])  # (2, S)
    overall = np.maximum(mass.sum(0), TINY) / max(mass.sum(), 1.0)
    share = (mass + STEP_PRIOR * overall) / (mass.sum(1, keepdims=True) + STEP_PRIOR)
    return np.asarray(STEP_TRUST * np.log(share / overall)[[0, 1, 1]])

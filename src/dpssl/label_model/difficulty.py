"""Step 2, the default model: what all LFs share on a row besides its class — how hard it is and what it looks like.

LFs on one backbone, or people looking at one picture, err together. Given the class alone their votes are dependent
and a model that multiplies them is over-confident. Here every row has a difficulty h (H levels) and a look-alike class
ℓ ≠ y, and given (y, ℓ, h) the votes are independent:

    P(v_k | y, ℓ, h)  = T_k(v_k | y) · e^{b_h[role(v_k)]} / Z_k(y, ℓ, h)
    P(s_k | v_k, …)   = c_h(s_k | role(v_k))                     s_k: how confident LF k is, in S steps
    P(y, ℓ, h)        = π_y · a(ℓ | y) · w_h                     role: the truth (v = y), the look-alike (v = ℓ), other

T_k is the LF's own table (abstaining is an outcome and has b = 0); b, c and w are shared by all LFs, so that they are
learnt from all votes and cannot bend to one class: free components per class fit better and label worse.

| symbol | argument | shape |
| --- | --- | --- |
| b_h[role] | `boost` | (H, 3) |
| log c_h(s, role) | `log_step` | (H, 3, S) |
| w_h | `level_share` | (H,) |
| ℓ, a(ℓ, y) | `look_alikes`, `look_alike_share` | (C, M), the M likeliest per class |

The row's part of the log joint is a sum of a term in (y, h) and one in (ℓ, h), so summing over ℓ is a matrix product:
the cost per row is C · H exponentials, not C² · H. H = 1 with b = 0 and M = 0 is the model without shared difficulty.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpssl.label_model.votes import Floats

Ints = NDArray[np.int64]

TRUTH, LOOK_ALIKE, OTHER = 0, 1, 2
N_LEVELS = 5
MOST_CLASSES = 128  # beyond, C² states per row cost more than they gave
MOST_ENTRIES = 1 << 22  # of the (K, C, M, H) normalisers; limits M
EASIEST_BOOST = np.array([1.5, -0.3, -3.0])  # where EM starts: on easy rows the truth is said more, the rest hardly
HARDEST_BOOST = np.array([-1.8, 3.0, 0.5])  # on hard rows the look-alike takes the truth's votes
LARGEST_BOOST = 5.0  # beyond e^5 a level only explains rows away (seen on votes of near-copies)
BOOST_PRIOR = 0.01  # pseudo-votes per row that hold each boost near its start
STEP_PRIOR = 10.0  # pseudo-votes that hold the steps of each role at their overall shares
TINY = 1e-300


@dataclass(frozen=True)
class Difficulty:
    """Parameters shared by all LFs; see the module's table of symbols."""

    boost: Floats  # (H, 3)
    log_step: Floats  # (H, 3, S)
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
        log_step=np.full((1, 3, n_steps), -np.log(n_steps)),
        level_share=np.ones(1),
        look_alikes=np.zeros((n_classes, 0), dtype=np.int64),
        look_alike_share=np.zeros((n_classes, 0)),
    )


def starting_difficulty(vote_rate: Floats, log_step: Floats, n_lfs: int) -> Difficulty:
    """Where EM starts: levels spread evenly from easy to hard, look-alikes by how often their votes fall on a class.

    vote_rate (C, C): expected number of votes for v (column) on a row of class y; log_step (1, 3, S).
    """
    n_classes = len(vote_rate)
    confusable = np.where(np.eye(n_classes, dtype=bool), -1.0, vote_rate.round(9))
    n_alike = min(MOST_ENTRIES // (n_lfs * n_classes * N_LEVELS), n_classes - 1)
    look_alikes = np.argsort(-confusable, axis=1, kind="stable")[:, :n_alike]  # (C, M)
    return Difficulty(
        boost=_starting_boost(),
        log_step=np.repeat(log_step, N_LEVELS, axis=0),
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


def posterior(
    difficulty: Difficulty, states: Floats, evidence: Floats, votes: Floats, y: Ints, weight: Floats
) -> tuple[Floats, SharedCounts, Floats]:
    """P(y | row) (n, C), the expected counts of the shared states, and the log-likelihood of each row (n,).

    states: `log_states`; evidence (n, C): Σ_k log T_k(v_k | y); votes (n, C, S): number of votes by class and step of
    confidence; y (n,): the known class or -1; weight (n,).
    """
    n_classes = votes.shape[1]
    n_levels, n_alike = len(difficulty.level_share), difficulty.look_alikes.shape[1]
    per_vote = difficulty.boost[:, :, None] + difficulty.log_step  # (H, 3, S)
    highest_state = states.max(1)  # (C, H) taken out of the matrix products, so that they cannot underflow
    all_votes = votes.sum(1)  # (n, S)
    most_votes = votes.sum(2).max(1)  # (n,)
    joint = np.empty((n_levels, *evidence.shape))
    alike_weight, alike_sum, state_matrix = [], [], []
    for h in range(n_levels):
        every_vote_other = all_votes @ per_vote[h, OTHER]  # (n,)
        np.add(evidence, _weigh(votes, per_vote[h, TRUTH] - per_vote[h, OTHER]), out=joint[h])
        joint[h] += highest_state[:, h]
        if n_alike == 0:
            joint[h] += every_vote_other[:, None]
            continue
        matrix = np.zeros((n_classes, n_classes))
        relative = np.exp(states[:, :, h] - highest_state[:, h, None])
        np.put_along_axis(matrix, difficulty.look_alikes, relative, axis=1)
        gain = per_vote[h, LOOK_ALIKE] - per_vote[h, OTHER]  # (S,)
        bound = max(gain.max(), 0.0) * most_votes  # (n,) at least the largest exponent below
        weight_of_alike = np.exp(_weigh(votes, gain) - bound[:, None])  # (n, C) by ℓ
        joint[h] += (every_vote_other + bound)[:, None]
        alike_weight.append(weight_of_alike)
        alike_sum.append(weight_of_alike @ matrix.T + TINY)  # (n, C) by y
        state_matrix.append(matrix)
    known = np.flatnonzero(y >= 0)
    joint[:, known] += np.where(np.arange(n_classes) == y[known, None], 0.0, -np.inf)
    largest = joint.max(0).max(1)  # (n,)
    np.exp(joint - largest[:, None], out=joint)
    for h, summed in enumerate(alike_sum):
        joint[h] *= summed
    total = joint.sum(0).sum(1)
    joint *= (weight / total)[:, None]  # (H, n, C) expected weight of every (h, y)

    state_mass = np.empty((n_classes, max(n_alike, 1), n_levels))
    role_mass = np.zeros(per_vote.shape)
    for h in range(n_levels):
        role_mass[h, TRUTH] = _count(joint[h], votes)
        if n_alike == 0:
            state_mass[:, 0, h] = joint[h].sum(0)
        else:
            ratio = joint[h] / alike_sum[h]
            pairs = state_matrix[h] * (ratio.T @ alike_weight[h])  # (C, C) by y, ℓ
            state_mass[:, :, h] = np.take_along_axis(pairs, difficulty.look_alikes, axis=1)
            role_mass[h, LOOK_ALIKE] = _count(alike_weight[h] * (ratio @ state_matrix[h]), votes)
        level_weight = joint[h] @ np.ones(n_classes)  # (n,)
        role_mass[h, OTHER] = level_weight @ all_votes - role_mass[h, TRUTH] - role_mass[h, LOOK_ALIKE]
    return joint.sum(0), SharedCounts(state_mass, np.maximum(role_mass, 0.0)), np.log(total) + largest


def _weigh(votes: Floats, weight: Floats) -> Floats:
    """Σ_s votes[:, :, s] · weight[s], (n, C)."""
    return votes[:, :, 0] * weight[0] if len(weight) == 1 else votes @ weight


def _count(mass: Floats, votes: Floats) -> Floats:
    """Σ over rows and classes of mass (n, C) · votes (n, C, S), (S,)."""
    return mass.ravel() @ votes.reshape(-1, votes.shape[2])


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
    log_step = _step_shares(counts.role_mass, has_look_alikes=expected_roles is not None)
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


def _step_shares(role_mass: Floats, has_look_alikes: bool) -> Floats:
    """log c_h(s | role), (H, 3, S), shrunk to the steps' overall shares."""
    if not has_look_alikes:
        role_mass = role_mass[:, [TRUTH, OTHER, OTHER]]
    overall = role_mass.sum((0, 1))  # (S,)
    smoothed = role_mass + STEP_PRIOR * (overall + 1.0) / (overall + 1.0).sum()
    return np.asarray(np.log(smoothed / smoothed.sum(2, keepdims=True)))

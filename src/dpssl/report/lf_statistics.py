"""What the votes tell of the labeling functions (LFs): how often each speaks, who agrees with whom, who is a copy."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.label_model import effective_lfs
from dpssl.step_files import VoteFile

Floats = NDArray[np.floating[Any]]
MOST_ROWS = 50_000  # evenly spaced rows of more: shares known to half a per cent
COPY = 0.98  # LFs that say the same on this share of the images on which either speaks are copies


@dataclass(frozen=True)
class LFStatistics:
    specialties: NDArray[np.bool_]  # (K, C)
    vote_shares: Floats  # (K, C) share of the images to which LF k gives class c
    coverage: Floats  # (K,) share of the images it votes on
    overlaps: Floats  # (K,) ... together with another
    conflicts: Floats  # (K,) ... where another says something else
    agreement: Floats  # (K, K) share of the images on which both vote where they agree; NaN without any
    mean_agreement: float  # over all pairs of votes on one image
    effective_lfs: Floats  # (C,) how many independent LFs a class's specialists are worth
    copies: list[list[int]]  # groups of LFs that say the same

    @property
    def dead(self) -> list[int]:
        """LFs that never vote."""
        return np.flatnonzero(self.coverage == 0).tolist()

    @property
    def lost(self) -> list[int]:
        """Those of them that have classes to vote for."""
        return [lf for lf in self.dead if self.specialties[lf].any()]


def describe_lfs(file: VoteFile) -> LFStatistics:
    votes = file.votes[:: -(-len(file.votes) // MOST_ROWS) or 1]
    n, n_lfs = votes.shape
    spoken = votes != ABSTAIN  # (n, K)
    several = spoken.sum(axis=1, keepdims=True) > 1
    unanimous = (~spoken | (votes == votes.max(axis=1, keepdims=True))).all(axis=1, keepdims=True)
    same = np.stack([((votes == votes[:, [lf]]) & spoken[:, [lf]]).sum(axis=0) for lf in range(n_lfs)])  # (K, K)
    speaks = spoken.astype(np.float32)
    both = speaks.T @ speaks  # (K, K)
    pairs = ~np.eye(n_lfs, dtype=bool)
    n_spoken = spoken.sum(axis=0)
    either = n_spoken[:, None] + n_spoken - both
    given = [np.bincount(votes[spoken[:, lf], lf], minlength=len(file.class_names)) for lf in range(n_lfs)]
    return LFStatistics(
        specialties=file.specialties,
        vote_shares=np.stack(given) / n,
        coverage=n_spoken / n,
        overlaps=(spoken & several).mean(axis=0),
        conflicts=(spoken & ~unanimous).mean(axis=0),
        agreement=np.where(both > 0, same / np.maximum(both, 1), np.nan),
        mean_agreement=float(same[pairs].sum() / max(1.0, both[pairs].sum())),
        effective_lfs=effective_lfs(votes, file.specialties),
        copies=_groups((same >= COPY * either) & (either > 0)),
    )


def _groups(alike: NDArray[np.bool_]) -> list[list[int]]:
    """Each LF joins the first one it is like; groups of one are left out."""
    leader = alike.argmax(axis=1)
    leader[~alike.any(axis=1)] = -1
    groups = [np.flatnonzero(leader == lf).tolist() for lf in range(len(alike))]
    return [group for group in groups if len(group) > 1]

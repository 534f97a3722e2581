"""Small synthetic votes with a known truth, of the kind step 1 makes."""

from dataclasses import dataclass

import numpy as np
import pytest


@dataclass(frozen=True)
class VoteWorld:
    votes: np.ndarray  # (n, K) int8
    y: np.ndarray  # (n,) the truth
    specialties: np.ndarray  # (K, C)
    n_classes: int


@pytest.fixture
def specialist_votes():
    """`specialist_votes(n, K, C, seed)`: independent specialised LFs whose abstention depends on the class.

    LF k votes for the classes of its specialties: right with its own skill, and at its own rate it guesses, known class
    or not. Class 0 has few specialists and class C - 1 many, so that majority vote is misled.
    """

    def make(n_rows=2000, n_lfs=12, n_classes=4, seed=0):
        rng = np.random.default_rng(seed)
        share = np.linspace(0.2, 0.7, n_classes)
        specialties = rng.random((n_lfs, n_classes)) < share
        specialties[np.arange(n_classes) % n_lfs, np.arange(n_classes)] = True
        for lf in np.flatnonzero(~specialties.any(1)):
            specialties[lf, rng.integers(n_classes)] = True
        y = rng.integers(0, n_classes, size=n_rows)
        votes = np.full((n_rows, n_lfs), -1, dtype=np.int8)
        for k in range(n_lfs):
            known = np.flatnonzero(specialties[k])
            inside = specialties[k, y]
            skill, guesses = rng.uniform(0.4, 0.7), rng.uniform(0.02, 0.25)
            u = rng.random(n_rows)
            guess = rng.choice(known, size=n_rows)
            votes[:, k] = np.where(inside & (u < skill), y, np.where(u > 1 - guesses, guess, -1))
        return VoteWorld(votes, y, specialties, n_classes)

    return make


@pytest.fixture
def world(specialist_votes):
    return specialist_votes()

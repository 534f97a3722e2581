"""The label model by the book: φ as the paper prints it, and P(y, ŷ) by enumerating every y and ŷ (K, C ≤ 4)."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

ABSTAIN = -1
Phi = Callable[[int, int, int], float]
Joint = dict[tuple[int, tuple[int, ...]], float]


@pytest.fixture
def printed_phi() -> Callable[..., Phi]:
    """`printed_phi("four-part", theta, tau)(k, y, v)`: Eq. 9, 19 or 20 as nested ifs; v = -1 is the paper's 0."""

    def make(kind: str, theta: np.ndarray, tau: np.ndarray) -> Phi:
        def four_part(k: int, y: int, v: int) -> float:
            if v == ABSTAIN or not tau[k, v]:
                return 1.0
            e = math.exp(theta[k, y])
            if tau[k, y]:
                return 1 + e if v == y else 1 / (1 + e)
            return e

        def three_part(k: int, y: int, v: int) -> float:
            if v == ABSTAIN or not tau[k, v]:
                return 1.0
            e = math.exp(theta[k, y])
            return 1 + e if v == y else 1 / (1 + e)

        def snorkel(k: int, y: int, v: int) -> float:
            if v == ABSTAIN:
                return 1.0
            return math.exp(theta[k, 0] + theta[k, 1]) if v == y else math.exp(theta[k, 0])

        return {"four-part": four_part, "three-part": three_part, "snorkel": snorkel}[kind]

    return make


@pytest.fixture
def enumerate_joint() -> Callable[..., Joint]:
    """`enumerate_joint(phi, tau)`: P(y, ŷ) of every y and every ŷ with ŷ^k in {abstain} ∪ τ_k, divided by its sum."""

    def enumerate_all(phi: Phi, tau: np.ndarray) -> Joint:
        n_lfs, n_classes = tau.shape
        outcomes = [[ABSTAIN, *np.flatnonzero(tau[k]).tolist()] for k in range(n_lfs)]
        weights = {
            (y, votes): math.prod(phi(k, y, v) for k, v in enumerate(votes))
            for y in range(n_classes)
            for votes in itertools.product(*outcomes)
        }
        total = math.fsum(weights.values())
        return {cell: weight / total for cell, weight in weights.items()}

    return enumerate_all


@pytest.fixture
def random_worlds() -> list[tuple[np.ndarray, np.ndarray]]:
    """(theta, tau) of every size K, C ≤ 4, with empty, full and overlapping specialised sets among them."""
    rng = np.random.default_rng(0)
    worlds = []
    for n_lfs, n_classes in itertools.product(range(1, 5), range(2, 5)):
        tau = rng.random((n_lfs, n_classes)) < 0.6
        tau[0, 0] = True
        worlds.append((rng.normal(0, 1.5, (n_lfs, n_classes)), tau))
    return worlds

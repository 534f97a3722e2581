"""Eq. 10: Z = Σ_y Π_k Σ_{ŷ^k ∈ {0} ∪ τ_k} φ(y, ŷ^k) in closed form."""

import itertools
import math

import numpy as np
import pytest
import torch

from dpssl.label_model.potentials import POTENTIALS, four_part, log_lf_partition, log_partition, make_potential


def test_by_hand():
    tau = torch.tensor([[True, True, False]])
    theta = torch.tensor([[0.0, math.log(3.0), math.log(0.25)]], dtype=torch.float64)
    # y = 0: 2 + 1 + 1/2; y = 1: 2 + 3 + 1/4; y = 2: 1 + 2 · 1/4
    assert log_partition(four_part(theta, tau)).exp().item() == pytest.approx(3.5 + 5.25 + 1.5)


@pytest.mark.parametrize("kind", POTENTIALS)
def test_equals_the_sum_over_everything(kind, random_worlds, printed_phi):
    for theta, tau in random_worlds:
        theta = theta[:, :2] if kind == "snorkel" else theta
        phi = printed_phi(kind, theta, tau)
        n_lfs, n_classes = tau.shape
        outcomes = [[-1, *np.flatnonzero(tau[k]).tolist()] for k in range(n_lfs)]
        z = math.fsum(
            math.prod(phi(k, y, v) for k, v in enumerate(votes))
            for y in range(n_classes)
            for votes in itertools.product(*outcomes)
        )
        log_z = log_partition(make_potential(kind, torch.from_numpy(theta), torch.from_numpy(tau))).item()
        assert log_z == pytest.approx(math.log(z), abs=1e-12)


def test_the_printed_closed_form(random_worlds):
    for theta, tau in random_worlds:
        e, size = np.exp(theta), tau.sum(1, keepdims=True)
        printed = np.where(tau, 2 + e + (size - 1) / (1 + e), 1 + size * e)
        ours = log_lf_partition(four_part(torch.from_numpy(theta), torch.from_numpy(tau))).exp().numpy()
        np.testing.assert_allclose(ours, printed, rtol=1e-13)


def test_a_dead_lf_multiplies_by_one():
    rng = np.random.default_rng(4)
    theta, tau = torch.from_numpy(rng.normal(size=(3, 4))), torch.from_numpy(rng.random((3, 4)) < 0.5)
    dead = torch.zeros(1, 4, dtype=torch.bool)
    with_dead = four_part(torch.cat([theta, torch.ones(1, 4, dtype=torch.float64)]), torch.cat([tau, dead]))
    torch.testing.assert_close(log_partition(with_dead), log_partition(four_part(theta, tau)))

"""Eq. 9: the four-part potential φ(y, ŷ^k)."""

import math

import numpy as np
import torch

from dpssl.label_model.potentials import four_part


def table_of(theta, tau):
    return four_part(torch.as_tensor(theta, dtype=torch.float64), torch.as_tensor(tau)).table().exp().numpy()


def test_each_case_by_hand():
    tau = [[True, True, False]]
    phi = table_of([[0.0, math.log(3.0), math.log(0.25)]], tau)[0]  # [y, ŷ]
    assert np.allclose(phi[0, :2], [2.0, 0.5])  # e = 1: right 1 + e, wrong inside τ 1/(1 + e)
    assert np.allclose(phi[1, :2], [0.25, 4.0])  # e = 3
    assert np.allclose(phi[2, :2], [0.25, 0.25])  # y outside τ: e, whatever the vote
    assert np.allclose(phi[:, 2], 1.0)  # never voted


def test_equals_the_printed_cases(random_worlds, printed_phi):
    for theta, tau in random_worlds:
        phi, table = printed_phi("four-part", theta, tau), table_of(theta, tau)
        for k, y, v in np.ndindex(*table.shape):
            assert math.isclose(table[k, y, v], phi(k, y, v), rel_tol=1e-13)


def test_agreement_helps_and_conflict_inside_the_specialties_hurts(random_worlds):
    for theta, tau in random_worlds:
        table = table_of(theta, tau)
        for k, y, v in np.ndindex(*table.shape):
            if tau[k, y] and tau[k, v]:
                assert table[k, y, v] > 1 if v == y else table[k, y, v] < 1


def test_an_untrusted_lf_says_nothing():
    np.testing.assert_allclose(table_of(np.full((1, 2), -40.0), [[True, True]]), 1.0)


def test_large_theta_stays_finite_in_log_space():
    potential = four_part(torch.full((1, 2), 800.0, dtype=torch.float64), torch.tensor([[True, False]]))
    assert torch.isfinite(potential.table()).all()

"""Eq. 20: the three-part potential, 1 + e if right, 1/(1 + e) if wrong, 1 otherwise."""

import math

import numpy as np
import torch

from dpssl.label_model.potentials import four_part, three_part


def table_of(theta, tau, potential=three_part):
    return potential(torch.as_tensor(theta, dtype=torch.float64), torch.as_tensor(tau)).table().exp().numpy()


def test_by_hand():
    table = table_of([[0.0, math.log(3.0), math.log(0.25)]], [[True, True, False]])[0]
    np.testing.assert_allclose(table[:, :2], [[2, 0.5], [0.25, 4], [0.8, 0.8]])
    np.testing.assert_allclose(table[:, 2], 1.0)


def test_equals_the_printed_cases(random_worlds, printed_phi):
    for theta, tau in random_worlds:
        phi, table = printed_phi("three-part", theta, tau), table_of(theta, tau)
        for k, y, v in np.ndindex(*table.shape):
            assert math.isclose(table[k, y, v], phi(k, y, v), rel_tol=1e-13)


def test_is_the_four_part_one_when_every_class_is_a_specialty():
    theta, tau = np.random.default_rng(0).normal(size=(3, 4)), np.ones((3, 4), dtype=bool)
    np.testing.assert_array_equal(table_of(theta, tau), table_of(theta, tau, four_part))


def test_cannot_raise_a_class_outside_the_specialties():
    """The over-confidence that Eq. 9 adds a fourth part for: here a vote can only count against y ∉ τ."""
    assert (table_of(np.linspace(-3, 3, 4)[:, None] * np.ones((4, 2)), [[True, False]] * 4)[:, 1, 0] < 1).all()

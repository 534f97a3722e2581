"""Eq. 19: Snorkel's potential, exp(θ_k1 + θ_k2) if right, exp(θ_k1) if wrong, 1 on abstention."""

import math

import numpy as np
import torch

from dpssl.label_model.potentials import snorkel


def table_of(theta, tau):
    return snorkel(torch.as_tensor(theta, dtype=torch.float64), torch.as_tensor(tau)).table().exp().numpy()


def test_by_hand():
    table = table_of([[math.log(2.0), math.log(5.0)]], [[True, True, True]])[0]
    np.testing.assert_allclose(table, [[10, 2, 2], [2, 10, 2], [2, 2, 10]])


def test_equals_the_printed_cases(random_worlds, printed_phi):
    for theta, tau in random_worlds:
        phi, table = printed_phi("snorkel", theta[:, :2], tau), table_of(theta[:, :2], tau)
        for k, y, v in np.ndindex(*table.shape):
            if tau[k, v]:
                assert math.isclose(table[k, y, v], phi(k, y, v), rel_tol=1e-13)


def test_the_same_for_every_class():
    """What the paper objects to: one accuracy per LF, whatever the class."""
    table = table_of([[0.3, 1.1]], [[True] * 4])[0]
    assert len(np.unique(np.diag(table).round(12))) == 1

"""Eq. 18, the appendix's joint: Eq. 8 with Snorkel's or the three-part potential in the place of Eq. 9."""

import numpy as np
import pytest
import torch

from dpssl.label_model.objective import log_joint
from dpssl.label_model.one_hot import OneHotVotes
from dpssl.label_model.potentials import make_potential


def joint_of(kind, votes, theta, tau):
    potential = make_potential(kind, torch.from_numpy(theta), torch.from_numpy(tau))
    return log_joint(OneHotVotes(np.asarray(votes, dtype=np.int8), tau.shape[1]), potential).exp().numpy()


def test_snorkels_by_hand():
    # One LF over two classes, θ = (0, log 3): right 3, wrong 1, abstain 1; Z = 2 · 5.
    joint = joint_of("snorkel", [[0], [-1]], np.array([[0.0, np.log(3.0)]]), np.array([[True, True]]))
    np.testing.assert_allclose(joint, [[0.3, 0.1], [0.1, 0.1]])


@pytest.mark.parametrize("kind", ["three-part", "snorkel"])
def test_equals_enumeration(kind, random_worlds, printed_phi, enumerate_joint):
    for theta, tau in random_worlds:
        theta = theta[:, :2] if kind == "snorkel" else theta
        joint = enumerate_joint(printed_phi(kind, theta, tau), tau)
        rows = sorted({votes for _, votes in joint})
        expected = [[joint[y, votes] for y in range(tau.shape[1])] for votes in rows]
        np.testing.assert_allclose(joint_of(kind, rows, theta, tau), expected, atol=1e-12, rtol=0)


def test_without_trust_snorkels_joint_is_flat_in_y():
    joint = joint_of("snorkel", [[0, 1]], np.array([[0.7, 0.0], [-0.3, 0.0]]), np.ones((2, 3), dtype=bool))
    np.testing.assert_allclose(joint, np.full((1, 3), joint[0, 0]))

"""Eq. 8: P(y, ŷ) = (1/Z) Π_k φ(y, ŷ^k)."""

import math

import numpy as np
import pytest
import torch

from dpssl.label_model.objective import log_joint
from dpssl.label_model.one_hot import OneHotVotes
from dpssl.label_model.potentials import implied_log_prior, make_potential


def joint_of(votes, theta, tau, kind="four-part", log_prior=None):
    potential = make_potential(kind, torch.from_numpy(theta), torch.from_numpy(tau))
    return log_joint(OneHotVotes(np.asarray(votes, dtype=np.int8), tau.shape[1]), potential, log_prior).exp().numpy()


def test_two_lfs_by_hand():
    # e = 1 everywhere, τ_0 = {0}, τ_1 = {0, 1}. Z_0 = (1 + 2)(1 + 2 + 1/2) = 10.5, Z_1 = (1 + 1)(1 + 2 + 1/2) = 7.
    tau = np.array([[True, False], [True, True]])
    joint = joint_of([[0, 1], [-1, 0]], np.zeros((2, 2)), tau)
    # row (0, 1): y = 0 gives 2 · 1/2, y = 1 gives 1 · 2; row (abstain, 0): 2 and 1/2.
    np.testing.assert_allclose(joint, np.array([[1.0, 2.0], [2.0, 0.5]]) / 17.5, rtol=1e-14)


def test_equals_enumeration(random_worlds, printed_phi, enumerate_joint):
    for theta, tau in random_worlds:
        joint = enumerate_joint(printed_phi("four-part", theta, tau), tau)
        rows = sorted({votes for _, votes in joint})
        expected = [[joint[y, votes] for y in range(tau.shape[1])] for votes in rows]
        np.testing.assert_allclose(joint_of(rows, theta, tau), expected, atol=1e-12, rtol=0)


def test_it_is_a_distribution(random_worlds, printed_phi, enumerate_joint):
    for theta, tau in random_worlds:
        rows = sorted({votes for _, votes in enumerate_joint(printed_phi("four-part", theta, tau), tau)})
        assert math.isclose(joint_of(rows, theta, tau).sum(), 1.0, rel_tol=1e-12)


def test_the_implied_prior_given_as_prior_changes_nothing(random_worlds):
    for theta, tau in random_worlds:
        potential = make_potential("four-part", torch.from_numpy(theta), torch.from_numpy(tau))
        votes = np.full((1, len(tau)), -1)
        np.testing.assert_allclose(
            joint_of(votes, theta, tau, log_prior=implied_log_prior(potential)), joint_of(votes, theta, tau), rtol=1e-12
        )


def test_a_free_prior_is_the_marginal_of_y(random_worlds, printed_phi, enumerate_joint):
    for theta, tau in random_worlds:
        prior = np.arange(1.0, tau.shape[1] + 1)
        prior /= prior.sum()
        rows = sorted({votes for _, votes in enumerate_joint(printed_phi("four-part", theta, tau), tau)})
        joint = joint_of(rows, theta, tau, log_prior=torch.from_numpy(prior).log())
        np.testing.assert_allclose(joint.sum(0), prior, rtol=1e-12)


def test_an_empty_row_under_the_literal_model_says_nothing():
    tau = np.array([[True, False, True], [False, True, True]])
    joint = joint_of([[-1, -1]], np.random.default_rng(1).normal(size=(2, 3)), tau)
    assert joint[0] == pytest.approx(np.full(3, joint[0, 0]))

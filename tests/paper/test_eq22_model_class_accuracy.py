"""Eq. 22: P_θ(ẑ_i^k = z_i | ẑ_i^k = 1), the class-wise accuracy."""

import math

import numpy as np
import pytest
import torch

from dpssl.label_model.potentials import POTENTIALS, implied_log_prior, make_potential, model_class_accuracy


def class_accuracy_of(kind, theta, tau, log_prior=None):
    potential = make_potential(kind, torch.from_numpy(theta), torch.from_numpy(tau))
    right, wrong = model_class_accuracy(potential, implied_log_prior(potential) if log_prior is None else log_prior)
    return right.numpy(), wrong.numpy()


def test_by_hand():
    # One LF, three classes, τ = {0, 1}, e = 1: a vote for 0 has weight 2 from y = 0, 1/2 from y = 1, 1 from y = 2.
    right, wrong = class_accuracy_of("four-part", np.zeros((1, 3)), np.array([[True, True, False]]))
    np.testing.assert_allclose(right[0, :2], 2 / 3.5)
    np.testing.assert_allclose(wrong[0, :2], 1.5 / 3.5)


@pytest.mark.parametrize("kind", POTENTIALS)
def test_equals_enumeration(kind, random_worlds, printed_phi, enumerate_joint):
    for theta, tau in random_worlds:
        theta = theta[:, :2] if kind == "snorkel" else theta
        joint = enumerate_joint(printed_phi(kind, theta, tau), tau)
        right, wrong = class_accuracy_of(kind, theta, tau)
        for k, i in np.argwhere(tau):
            voted = math.fsum(p for (_, votes), p in joint.items() if votes[k] == i)
            expected = math.fsum(p for (y, votes), p in joint.items() if votes[k] == i and y == i) / voted
            assert right[k, i] == pytest.approx(expected, abs=1e-12)
            assert wrong[k, i] == pytest.approx(1 - expected, abs=1e-12)


def test_outside_the_specialties_there_is_no_vote_to_judge():
    right, _ = class_accuracy_of("four-part", np.ones((1, 3)), np.array([[True, False, False]]))
    assert (right[0, 1:] == 0.5).all()


def test_a_rare_class_is_rarely_meant():
    """Under a free prior a vote for a class of vanishing share is almost surely wrong."""
    prior = torch.tensor([1e-9, 1 - 1e-9], dtype=torch.float64)
    right, wrong = class_accuracy_of("four-part", np.zeros((1, 2)), np.ones((1, 2), dtype=bool), prior.log())
    assert right[0, 0] < 1e-8
    assert wrong[0, 0] == pytest.approx(1.0)

"""Eq. 21: P_θ(ẑ_i^k = z_i | ẑ_i^k ≠ 0) in closed form."""

import math

import numpy as np
import pytest
import torch

from dpssl.label_model.potentials import POTENTIALS, implied_log_prior, make_potential, model_accuracy


def accuracy_of(kind, theta, tau):
    potential = make_potential(kind, torch.from_numpy(theta), torch.from_numpy(tau))
    right, wrong = model_accuracy(potential, implied_log_prior(potential))
    return right.numpy(), wrong.numpy()


def by_enumeration(joint, tau, k, i):
    """P(ẑ_i^k = z_i | ẑ_i^k ≠ 0) summed over every y and ŷ."""
    spoken = math.fsum(p for (_, votes), p in joint.items() if votes[k] != -1)
    right = math.fsum(p for (y, votes), p in joint.items() if votes[k] != -1 and (votes[k] == i) == (y == i))
    return right / spoken


def test_by_hand():
    # One LF, two classes, τ = {0}, e = 1: y = 0 speaks right with weight 2, y = 1 speaks wrong with weight 1.
    right, wrong = accuracy_of("four-part", np.zeros((1, 2)), np.array([[True, False]]))
    np.testing.assert_allclose(right, [[2 / 3, 2 / 3]])  # Z_0 = 3, Z_1 = 2: P = 2 / (2 + 1)
    np.testing.assert_allclose(wrong, [[1 / 3, 1 / 3]])


@pytest.mark.parametrize("kind", POTENTIALS)
def test_equals_enumeration(kind, random_worlds, printed_phi, enumerate_joint):
    for theta, tau in random_worlds:
        theta = theta[:, :2] if kind == "snorkel" else theta
        joint = enumerate_joint(printed_phi(kind, theta, tau), tau)
        right, wrong = accuracy_of(kind, theta, tau)
        for k, i in np.ndindex(*tau.shape):
            if tau[k].any():
                expected = by_enumeration(joint, tau, k, i)
                assert right[k, i] == pytest.approx(expected, abs=1e-12)
                assert wrong[k, i] == pytest.approx(1 - expected, abs=1e-12)


def test_the_letter_of_eq_9_is_not_a_probability_outside_the_specialties(printed_phi, enumerate_joint):
    """φ(i, i) = 1 for i ∉ τ_k ("otherwise") in Eq. 21 does not give what enumeration gives (deviation 8)."""
    theta, tau = np.zeros((1, 2)), np.array([[True, False]])
    letter = (1.0 + 2.0) / (2.0 + 1.0)  # task i = 1: φ(1, 1) := 1, plus Φ(0, τ) = 2, over 3
    expected = by_enumeration(enumerate_joint(printed_phi("four-part", theta, tau), tau), tau, 0, 1)
    assert accuracy_of("four-part", theta, tau)[0][0, 1] == pytest.approx(expected)
    assert letter != pytest.approx(expected)


def test_an_lf_that_never_speaks_has_no_accuracy():
    right, wrong = accuracy_of("four-part", np.ones((2, 3)), np.array([[False] * 3, [True] * 3]))
    assert (right[0] == 0.5).all()
    assert (wrong[0] == 0.5).all()


def test_grows_to_one_with_trust():
    tau = np.ones((1, 3), dtype=bool)
    accuracies = [accuracy_of("four-part", np.full((1, 3), t), tau)[0][0, 0] for t in (-2.0, 0.0, 2.0, 6.0, 40.0)]
    assert accuracies == sorted(accuracies)
    assert accuracies[-1] == pytest.approx(1.0)

"""Eq. 13: E[ẑ_i^k z_i] = 2 P(ẑ_i^k = z_i) + P(ẑ_i^k = 0) - 1."""

import numpy as np
import pytest

from dpssl.label_model.accuracy import moments_to_accuracy, one_versus_all, true_accuracy, truth_moments


@pytest.fixture
def votes():
    return np.random.default_rng(1).integers(-1, 3, size=(60, 4))


@pytest.fixture
def y():
    return np.random.default_rng(2).integers(0, 3, size=60)


def test_by_hand():
    # LF votes 0, 1, abstain, 0 on truths 0, 0, 0, 1. Task 0: ẑ = 1, -1, 0, 1; z = 1, 1, 1, -1; mean of ẑz = -1/4.
    moments = truth_moments(np.array([[0], [1], [-1], [0]]), np.array([0, 0, 0, 1]), 2)
    np.testing.assert_allclose(moments, [[-0.25, -0.25]])


def test_equals_the_mean_of_products(votes, y):
    z_hat = one_versus_all(votes, 3)
    moments = truth_moments(votes, y, 3)
    for k, i in np.ndindex(4, 3):
        products = [z_hat[i, n, k] * (1 if y[n] == i else -1) for n in range(60)]
        assert moments[k, i] == pytest.approx(np.mean(products))


def test_solved_for_the_accuracy(votes, y):
    """(E + 1 - P(0)) / (2 (1 - P(0))) is the share of spoken votes that are right in the task."""
    z_hat = one_versus_all(votes, 3)
    accuracy = moments_to_accuracy(truth_moments(votes, y, 3), (votes == -1).mean(0))
    for k, i in np.ndindex(4, 3):
        spoken = votes[:, k] != -1
        assert accuracy[k, i] == pytest.approx((z_hat[i, spoken, k] == np.where(y[spoken] == i, 1, -1)).mean())


def test_class_accuracy_is_the_precision_of_the_vote(votes, y):
    estimate = true_accuracy(votes, y, 3)
    for k, i in np.ndindex(4, 3):
        assert estimate.class_accuracy[k, i] == pytest.approx((y[votes[:, k] == i] == i).mean())


def test_a_perfect_lf_has_its_speak_rate_and_a_silent_one_nothing(y):
    moments = truth_moments(np.stack([y, np.full(60, -1)], axis=1), y, 3)
    np.testing.assert_allclose(moments[0], 1.0)
    np.testing.assert_allclose(moments[1], 0.0)
    assert np.isnan(moments_to_accuracy(moments, np.array([0.0, 1.0]))[1]).all()

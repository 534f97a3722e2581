"""Eq. 15: |E[ẑ^j z]| from the three pairwise moments of a triplet, its average over triplets, and its sign."""

import itertools
import math

import numpy as np
import pytest

from dpssl.errors import InputError
from dpssl.label_model.accuracy import (
    accuracy_error,
    signed_moments,
    solve_triplets,
    triplet_accuracy,
    true_accuracy,
    vote_moments,
)


def rank_one(e):
    """Moments that Eq. 14 gives for E[ẑ^k z] = e, (1, K, K)."""
    return np.outer(e, e)[None]


def test_by_hand():
    # E[z1 z2] = .48, E[z1 z3] = .32, E[z2 z3] = .24: |E[z1]| = sqrt(.48 · .32 / .24) = .8, then .6 and .4.
    moments = np.array([[[1, 0.48, 0.32], [0.48, 1, 0.24], [0.32, 0.24, 1]]])
    for average in ("mean", "median"):
        np.testing.assert_allclose(solve_triplets(moments, average), [[0.8, 0.6, 0.4]])


@pytest.mark.parametrize("average", ["mean", "median"])
def test_equals_the_loop_over_triplets(average):
    votes = np.random.default_rng(0).integers(-1, 3, size=(200, 5))
    moments = vote_moments(votes, 3)
    solved = solve_triplets(moments, average)
    for i, j in np.ndindex(3, 5):
        values = [
            math.sqrt(abs(moments[i, j, k] * moments[i, j, m] / moments[i, k, m]))
            for k, m in itertools.combinations([k for k in range(5) if k != j], 2)
            if abs(moments[i, k, m]) > 1e-12
        ]
        assert solved[i, j] == pytest.approx(getattr(np, average)(values))


def test_signs_of_a_mostly_right_crowd():
    e = np.array([0.7, 0.5, -0.4, 0.6, 0.3])
    np.testing.assert_allclose(signed_moments(rank_one(e)), e[:, None])


def test_votes_that_say_nothing_about_the_signs_leave_them_positive():
    e = np.array([1.0, 1.0, -1.0, -1.0])  # two against two
    assert (signed_moments(rank_one(e)) > 0).all()


def test_pairs_without_a_moment_are_left_out():
    """The last LF meets no other: triplets with it in the denominator are 0/0 and must not count."""
    moments = rank_one(np.array([0.8, 0.6, 0.4, 0.0]))
    np.testing.assert_allclose(solve_triplets(moments), [[0.8, 0.6, 0.4, 0.0]])


def test_two_lfs_are_too_few():
    with pytest.raises(InputError, match=r"at least 3 labeling functions.*'dawid-skene'"):
        solve_triplets(np.ones((2, 2, 2)))


def test_recovers_accuracies_where_its_assumptions_hold():
    """Two balanced classes, independent votes, abstention that does not depend on the class."""
    rng = np.random.default_rng(1)
    n, right_rate = 100_000, np.array([0.9, 0.8, 0.7, 0.65, 0.85])
    y = rng.integers(0, 2, size=n)
    spoken = rng.random((n, 5)) < 0.7
    votes = np.where(spoken, np.where(rng.random((n, 5)) < right_rate, y[:, None], 1 - y[:, None]), -1)
    for average in ("mean", "median"):
        estimate = triplet_accuracy(votes, 2, average)
        error = accuracy_error(estimate.accuracy, true_accuracy(votes, y, 2).accuracy)
        assert error.mean_absolute < 0.01
        assert error.correlation > 0.99
        assert estimate.clipped == 0


def test_a_dead_lf_has_no_accuracy():
    votes = np.random.default_rng(2).integers(-1, 2, size=(100, 4))
    votes[:, 2] = -1
    assert np.isnan(triplet_accuracy(votes, 2).accuracy[2]).all()
    assert np.isfinite(triplet_accuracy(votes, 2).accuracy[[0, 1, 3]]).all()

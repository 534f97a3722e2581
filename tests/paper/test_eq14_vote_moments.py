"""Eq. 14: E[ẑ^j ẑ^k] = E[ẑ^j z] E[ẑ^k z] for votes independent given z, and its observable left side."""

import numpy as np
import pytest

from dpssl.label_model import votes as votes_module
from dpssl.label_model.accuracy import one_versus_all, truth_moments, vote_moments


def symmetric_votes(n, accuracies, speak_rates, seed=0):
    """Two classes; LF k speaks whatever the class is and is then right with probability accuracies[k]."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size=n)
    right = rng.random((n, len(accuracies))) < accuracies
    spoken = rng.random((n, len(accuracies))) < speak_rates
    return np.where(spoken, np.where(right, y[:, None], 1 - y[:, None]), -1), y


def test_by_hand():
    # Task 0: ẑ = (1, 1), (-1, 1), (0, -1); products 1, -1, 0.
    moments = vote_moments(np.array([[0, 0], [1, 0], [-1, 1]]), 2)
    np.testing.assert_allclose(moments[0], [[2 / 3, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(moments[1], moments[0])  # two classes: the tasks are mirror images


def test_equals_the_slow_mean():
    votes = np.random.default_rng(3).integers(-1, 4, size=(50, 5))
    z = one_versus_all(votes, 4)
    moments = vote_moments(votes, 4)
    for i, j, k in np.ndindex(4, 5, 5):
        assert moments[i, j, k] == pytest.approx(np.mean([z[i, n, j] * z[i, n, k] for n in range(50)]))


def test_weights_repeat_rows():
    votes = np.random.default_rng(4).integers(-1, 3, size=(20, 4))
    times = np.random.default_rng(5).integers(0, 4, size=20)
    np.testing.assert_allclose(
        vote_moments(votes, 3, times.astype(float)), vote_moments(np.repeat(votes, times, axis=0), 3), atol=1e-14
    )


def test_chunks_add_up(monkeypatch):
    votes = np.random.default_rng(6).integers(-1, 3, size=(50, 4))
    whole = vote_moments(votes, 3)
    monkeypatch.setattr(votes_module, "CHUNK_VOTES", 28)  # seven rows at a time
    np.testing.assert_allclose(vote_moments(votes, 3), whole, atol=1e-14)


def test_factorises_for_votes_independent_given_the_class():
    votes, y = symmetric_votes(200_000, np.array([0.9, 0.75, 0.6]), np.array([1.0, 0.7, 0.4]))
    truth = truth_moments(votes, y, 2)
    moments = vote_moments(votes, 2)
    for i in range(2):
        for j, k in [(0, 1), (0, 2), (1, 2)]:
            assert moments[i, j, k] == pytest.approx(truth[j, i] * truth[k, i], abs=0.01)

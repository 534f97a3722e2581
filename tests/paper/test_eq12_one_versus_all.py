"""Eq. 12: ẑ_i^k = 1 if ŷ^k = i, 0 if LF k abstains, -1 otherwise."""

import numpy as np

from dpssl.label_model.accuracy import one_versus_all


def test_by_hand():
    z = one_versus_all(np.array([[0, 2, -1], [1, 1, 0]]), 3)  # (C, n, K)
    assert z[0].tolist() == [[1, -1, 0], [-1, -1, 1]]
    assert z[1].tolist() == [[-1, -1, 0], [1, 1, -1]]
    assert z[2].tolist() == [[-1, 1, 0], [-1, -1, -1]]


def test_equals_the_printed_cases():
    votes = np.random.default_rng(0).integers(-1, 4, size=(30, 5))
    z = one_versus_all(votes, 4)
    for i, n, k in np.ndindex(4, 30, 5):
        expected = 1 if votes[n, k] == i else 0 if votes[n, k] == -1 else -1
        assert z[i, n, k] == expected


def test_rows_of_abstentions_are_zero_in_every_task():
    assert not one_versus_all(np.full((2, 3), -1), 4).any()

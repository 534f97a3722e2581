"""What every model asks of votes."""

import numpy as np
import scipy.sparse

from dpssl.label_model.votes import covered, unanimous_votes

VOTES = np.array([[0, 1, -1], [1, 1, 0], [-1, -1, -1]], dtype=np.int8)


def test_covered():
    assert covered(VOTES).tolist() == [True, True, False]
    sparse = scipy.sparse.coo_matrix(([0, 1], ([0, 2], [1, 1])), shape=(3, 2))  # a stored 0 is the vote for class 0
    assert covered(sparse).tolist() == [True, False, True]


def test_unanimous_votes():
    votes = np.array([[0, 0, -1], [1, 0, -1], [2, -1, -1], [-1, -1, -1], [2, 2, 2]], dtype=np.int8)
    assert unanimous_votes(votes).tolist() == [0, -1, -1, -1, 2]

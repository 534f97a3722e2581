"""What must hold for every label model on any votes: finite rows that sum to 1, unanimity kept, order of no account."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpssl.label_model import VARIANTS, LabelModel
from dpssl.label_model.votes import covered, unanimous_votes

FEWEST_LFS = {"triplet": 3, "paper": 3}
EXAMPLES = {"paper": 100, "snorkel": 100, "adaptive": 200}  # the slower fits; the others get 500: 2,400 matrices


@st.composite
def small_votes(draw, fewest_lfs):
    """Any small matrix of votes: empty rows, dead LFs, unvoted classes, copies and constant columns all occur."""
    n_classes = draw(st.integers(2, 4))
    n_rows, n_lfs = draw(st.integers(1, 12)), draw(st.integers(fewest_lfs, 6))
    flat = draw(st.lists(st.integers(-1, n_classes - 1), min_size=n_rows * n_lfs, max_size=n_rows * n_lfs))
    votes = np.array(flat, dtype=np.int8).reshape(n_rows, n_lfs)
    labels = draw(st.lists(st.integers(-1, n_classes - 1), min_size=n_rows, max_size=n_rows))
    y = np.array(labels) if draw(st.booleans()) else None
    return n_classes, votes, y, draw(st.integers(0, 2**32 - 1))


def soft_labels(variant, n_classes, votes, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # dead LFs and unvoted classes are part of the game here
        return LabelModel(n_classes, variant).fit(votes, y=y).predict_proba(votes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_votes(variant):
    @settings(max_examples=EXAMPLES.get(variant, 500))
    @given(small_votes(FEWEST_LFS.get(variant, 1)))
    def check(case):
        n_classes, votes, y, seed = case
        proba = soft_labels(variant, n_classes, votes, y)
        assert proba.shape == (len(votes), n_classes)
        assert np.isfinite(proba).all()
        assert (proba >= 0).all()
        np.testing.assert_allclose(proba.sum(1), 1.0, atol=1e-12)

        unanimous = unanimous_votes(votes)
        for row in np.flatnonzero(unanimous >= 0):
            others = np.delete(proba[row], unanimous[row])
            assert (proba[row, unanimous[row]] > others).all()

        empty = proba[~covered(votes)]
        np.testing.assert_allclose(empty, np.broadcast_to(empty[:1], empty.shape))

        rng = np.random.default_rng(seed)
        rows, lfs = rng.permutation(len(votes)), rng.permutation(votes.shape[1])
        shuffled = soft_labels(variant, n_classes, votes[rows][:, lfs], None if y is None else y[rows])
        np.testing.assert_allclose(shuffled, proba[rows], atol=1e-6)

    check()

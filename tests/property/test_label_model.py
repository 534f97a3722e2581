"""What must hold for every label model on any votes: finite rows that sum to 1, unanimity kept, order of no account."""

import os
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpssl.label_model import VARIANTS, LabelModel, variants
from dpssl.label_model.votes import covered, unanimous_votes

FEWEST_LFS = {"triplet": 3, "paper": 3}
USES_CONFIDENCE = [name for name, variant in VARIANTS.items() if variant.uses_confidence]
# Random matrices per model, each fitted twice. A fit of these four takes 4 to 25 ms: minutes at 2,000 matrices each,
# so they get fewer by default; DPSSL_PROPERTY_EXAMPLES=2000 gives every test the same number.
EXAMPLES = {"paper": 100, "snorkel": 100, "adaptive": 200, "dawid-skene": 500}
FULL_COUNT = 2000


def n_examples(default: int) -> int:
    return int(os.environ.get("DPSSL_PROPERTY_EXAMPLES", default))


@st.composite
def small_votes(draw, fewest_lfs=1, with_confidence=False):
    """Any small matrix of votes: empty rows, dead LFs, unvoted classes, copies and constant columns all occur."""
    n_classes = draw(st.integers(2, 4))
    n_rows, n_lfs = draw(st.integers(1, 12)), draw(st.integers(fewest_lfs, 6))
    flat = draw(st.lists(st.integers(-1, n_classes - 1), min_size=n_rows * n_lfs, max_size=n_rows * n_lfs))
    votes = np.array(flat, dtype=np.int8).reshape(n_rows, n_lfs)
    labels = draw(st.lists(st.integers(-1, n_classes - 1), min_size=n_rows, max_size=n_rows))
    y = np.array(labels) if draw(st.booleans()) else np.full(n_rows, -1)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    confidence = draw(st.sampled_from([0.0, 0.5, 1.0])) * rng.integers(0, 5, votes.shape) / 4  # ties, zeros and ones
    return n_classes, votes, y, confidence if with_confidence else None, rng


def soft_labels(variant, n_classes, votes, y, confidence):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # dead LFs and unvoted classes are part of the game here
        return LabelModel(n_classes, variant).fit(votes, y, confidence).predict_proba(votes, confidence)


def check(variant, n_classes, votes, y, confidence, rng):
    proba = soft_labels(variant, n_classes, votes, y, confidence)
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

    rows, lfs = rng.permutation(len(votes)), rng.permutation(votes.shape[1])
    shuffled = None if confidence is None else confidence[rows][:, lfs]
    np.testing.assert_allclose(
        soft_labels(variant, n_classes, votes[rows][:, lfs], y[rows], shuffled), proba[rows], atol=1e-6
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_votes(variant):
    @settings(max_examples=n_examples(EXAMPLES.get(variant, FULL_COUNT)))
    @given(small_votes(FEWEST_LFS.get(variant, 1)))
    def check_case(case):
        check(variant, *case)

    check_case()


@pytest.mark.parametrize("variant", USES_CONFIDENCE)
def test_any_votes_with_any_confidences(variant):
    @settings(max_examples=n_examples(200))
    @given(small_votes(with_confidence=True))
    def check_case(case):
        check(variant, *case)

    check_case()


def test_any_votes_without_whole_tables(monkeypatch):
    """What the default model does for 1,000 classes, on small votes."""
    monkeypatch.setattr(variants, "LARGEST_ADAPTIVE_TABLE", 0)

    @settings(max_examples=n_examples(500))
    @given(small_votes())
    def check_case(case):
        check("adaptive", *case)

    check_case()

"""Confidences as steps: their bins, ranks by LF, and steps by hand."""

import numpy as np
import pytest

from dpssl.label_model.confidence import (
    LARGEST_LOGIT,
    N_BINS,
    confidence_bins,
    confidence_steps,
    rank_confidences,
)


def exact_bins(confidence):
    """The same scale in float64."""
    probability = np.clip(confidence.astype(np.float64), 1e-9, 1 - 1e-9)
    logit = np.log(probability) - np.log1p(-probability)
    return np.clip(((logit / LARGEST_LOGIT + 1) * (N_BINS / 2)).astype(int), 0, N_BINS - 1)


@pytest.mark.parametrize("kind", ["float16", "uint8"])
def test_bins_of_every_confidence_that_step_1_writes(kind):
    every = {
        "float16": np.arange(0x3C01, dtype=np.uint16).view(np.float16).astype(np.float32),  # 0 … 1
        "uint8": np.arange(256, dtype=np.float32) * np.float32(1 / 255),
    }[kind]
    bins = confidence_bins(every[:, None])[:, 0]
    np.testing.assert_array_equal(bins, exact_bins(every))
    assert (bins[0], bins[-1]) == (0, N_BINS - 1)


def test_bins_of_any_confidence_are_at_most_one_off():
    confidence = np.random.default_rng(0).beta(5, 1, (5000, 4)).astype(np.float32)
    off = np.abs(confidence_bins(confidence) - exact_bins(confidence))
    assert off.max() <= 1
    assert (off > 0).mean() < 1e-3


def test_ranks_by_hand():
    votes = np.array([[0, -1], [0, -1], [1, -1], [-1, -1]])
    bins = confidence_bins(np.array([[0.5, 0.5], [0.9, 0.5], [0.9, 0.5], [0.99, 0.5]], dtype=np.float32))
    ranks = rank_confidences(votes, bins, np.ones(4))
    assert ranks[0, bins[:, 0]] == pytest.approx([1 / 6, 2 / 3, 2 / 3, 1.0])
    assert (ranks[1] == 0).all(), "an LF that never votes"
    heavy = rank_confidences(votes, bins, np.array([0.2, 0.1, 0.1, 7.0]))
    assert heavy[0, bins[:3, 0]] == pytest.approx([0.25, 0.75, 0.75]), "fractions, and a row that is silent"


def test_steps_are_relative_to_the_row():
    ranks = np.tile(np.linspace(0, 1, 11), (3, 1))
    bins = np.array([[5, 5, 5], [0, 5, 10], [2, 3, 9]], dtype=np.int16)
    votes = np.array([[0, 1, 0], [0, 1, 0], [0, 1, -1]])
    steps = confidence_steps(votes, bins, ranks)
    assert steps[:2].tolist() == [[2, 2, 2], [0, 2, 4]]
    assert steps[2, :2].tolist() == [2, 2]

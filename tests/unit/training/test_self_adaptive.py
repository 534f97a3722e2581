"""Thresholds that follow how sure the predictions of a class are, in place of how frequent they are."""

import pytest
import torch

from dpssl.training.self_adaptive import CONFIDENCE, SHARES, SelfAdaptive

# Class 0 is predicted three times, with .9 each; class 1 once, with .9 too; class 2 twice, with .6.
ROWS = torch.tensor([[0.9, 0.1, 0.0]] * 3 + [[0.0, 0.9, 0.1]] + [[0.4, 0.0, 0.6]] * 2)


def test_a_class_has_the_mean_certainty_of_what_is_predicted_as_it() -> None:
    adaptive = SelfAdaptive(3, decay=0.0, follow=CONFIDENCE)
    adaptive.adapt(ROWS)
    threshold = (3 * 0.9 + 0.9 + 2 * 0.6) / 6
    assert adaptive.thresholds().tolist() == pytest.approx([threshold, threshold, threshold * 0.6 / 0.9])
    assert adaptive.trusts(ROWS).tolist() == [True] * 6
    assert adaptive.trusts(torch.tensor([[0.3, 0.7, 0.0], [0.0, 0.4, 0.6]])).tolist() == [False, True]


def test_a_rare_class_has_no_lower_threshold_where_it_is_as_sure() -> None:
    """With shares the threshold of class 1 is low for its rarity alone, and a doubtful prediction of it passes."""
    doubtful = torch.tensor([[0.4, 0.6, 0.0]])
    for follow, passes in ((SHARES, True), (CONFIDENCE, False)):
        adaptive = SelfAdaptive(3, decay=0.0, limits=(0.9, 0.95), follow=follow)
        adaptive.adapt(ROWS)
        assert adaptive.trusts(doubtful).tolist() == [passes]


def test_running_means_start_alike_for_all_and_follow_the_batches() -> None:
    """With m = .5: sums of certainty .5/9 + .5 (2.7, .9, 1.2)/6, histogram .5/3 + .5 (3, 1, 2)/6."""
    adaptive = SelfAdaptive(3, decay=0.5, follow=CONFIDENCE)
    assert adaptive.thresholds().tolist() == pytest.approx([1 / 3] * 3)
    adaptive.adapt(ROWS)
    sums = [0.5 / 9 + 0.5 * total / 6 for total in (2.7, 0.9, 1.2)]
    counts = [0.5 / 3 + 0.5 * count / 6 for count in (3, 1, 2)]
    certainty = [a / b for a, b in zip(sums, counts, strict=True)]
    expected = [adaptive.threshold.item() * value / max(certainty) for value in certainty]
    assert adaptive.thresholds().tolist() == pytest.approx(expected)


def test_what_is_known_before_training_is_taken_as_it_is() -> None:
    adaptive = SelfAdaptive(3, decay=0.999, follow=CONFIDENCE)
    adaptive.begin_with(ROWS)
    threshold = (3 * 0.9 + 0.9 + 2 * 0.6) / 6
    assert adaptive.thresholds().tolist() == pytest.approx([threshold, threshold, threshold * 0.6 / 0.9])


def test_a_class_that_nobody_predicts_has_a_threshold_all_the_same() -> None:
    """A finite one, the lowest: it has everything to learn."""
    adaptive = SelfAdaptive(3, decay=0.0, follow=CONFIDENCE)
    adaptive.adapt(torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]))
    assert adaptive.thresholds().tolist() == pytest.approx([0.85, 0.85 * 8 / 9, 0.0])


def test_checkpoints_hold_what_the_thresholds_follow_and_nothing_more() -> None:
    """Those of runs that follow the shares are as they were before there was a choice."""
    assert set(SelfAdaptive(3, 0.9).state_dict()) == {"threshold", "mean_prediction", "label_histogram"}
    assert "certainty_sum" in SelfAdaptive(3, 0.9, follow=CONFIDENCE).state_dict()

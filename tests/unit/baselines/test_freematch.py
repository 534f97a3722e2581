"""FreeMatch: its running estimates and fairness loss by hand, and FixMatch as a limit."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dpssl.errors import InputError
from dpssl.training.self_adaptive import fairness_loss


def test_estimates_start_at_one_over_c_and_follow_the_batch(make_system: Callable[..., Any]) -> None:
    """The paper's running estimates, with m = .5: means of (.8, .6) = .7, of the rows, and of their argmax."""
    system = make_system("freematch", decay=0.5)
    assert system.adaptive.threshold.item() == pytest.approx(1 / 3)
    system.adaptive.adapt(torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.6, 0.2]]))
    assert system.adaptive.threshold.item() == pytest.approx(0.5 / 3 + 0.35)
    assert system.adaptive.mean_prediction.tolist() == pytest.approx([1 / 6 + 0.25, 1 / 6 + 0.175, 1 / 6 + 0.075])
    assert system.adaptive.label_histogram.tolist() == pytest.approx([1 / 6 + 0.25, 1 / 6 + 0.25, 1 / 6])
    # The likeliest class has the whole threshold, the others their share of it.
    top = 1 / 6 + 0.25
    assert system.adaptive.thresholds().tolist() == pytest.approx(
        [system.adaptive.threshold.item() * p / top for p in system.adaptive.mean_prediction.tolist()]
    )


def test_fairness_loss_by_hand() -> None:
    # Sure rows: (.5, .5 - e) twice and (.2, .8) once, so that the mean is (.4, .6) and the histogram (2/3, 1/3).
    # Ratios (.6, 1.8), normalised (.25, .75). Target: (.5, .5) / (.8, .2) = (.625, 2.5), normalised (.2, .8).
    rows = torch.tensor([[0.5001, 0.4999], [0.5001, 0.4999], [0.2, 0.8], [0.9, 0.1]])
    sure = torch.tensor([True, True, True, False])
    loss = fairness_loss(rows, sure, torch.tensor([0.5, 0.5]), torch.tensor([0.8, 0.2]))
    assert loss.item() == pytest.approx(0.2 * math.log(0.25) + 0.8 * math.log(0.75), abs=1e-3)


def test_all_terms_by_hand_and_estimates_that_the_loss_itself_adapts(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    # m = 0, so the estimates are those of this batch: τ = (.85 + .85 + .9 + .6) / 4 = .8, p̃ = (.6, .4), and three of
    # four rows say class 0: h̃ = (.75, .25). Thresholds (.8, .8 · .4/.6 = .53): all but the last row, at .6, are sure.
    # (With the first estimates, 1/2 each, it would be too.) Their strong views cost -2 log .55 - log .9, over 4 rows.
    # Fairness of those three: mean (.4, .6) by histogram (2/3, 1/3) is (.6, 1.8), normalised (1/4, 3/4); target
    # (.6/.75, .4/.25) = (.8, 1.6), normalised (1/3, 2/3). L_f = log(1/4)/3 + 2 log(3/4)/3. Labelled log 2.
    system = make_system("freematch", decay=0, unlabeled_weight=3, fairness_weight=5, task={"n_classes": 2})
    strong = torch.tensor([[0.55, 0.45], [0.55, 0.45], [0.1, 0.9], [0.5, 0.5]]).log()
    weak = torch.tensor([[0.85, 0.15], [0.85, 0.15], [0.1, 0.9], [0.6, 0.4]]).log()
    chosen = learner(torch.zeros(1, 2), strong, weak)
    loss, metrics = system.loss(make_batch(n_unlabeled=4), chosen)
    unsupervised = -(2 * math.log(0.55) + math.log(0.9)) / 4
    fairness = math.log(1 / 4) / 3 + 2 * math.log(3 / 4) / 3
    assert system.adaptive.threshold.item() == pytest.approx(0.8)
    assert system.adaptive.mean_prediction.tolist() == pytest.approx([0.6, 0.4])
    assert system.adaptive.label_histogram.tolist() == pytest.approx([0.75, 0.25])
    assert metrics["pseudo_label_rate"].item() == 0.75
    assert metrics["unlabeled_loss"].item() == pytest.approx(unsupervised)
    assert metrics["fairness_loss"].item() == pytest.approx(fairness)
    assert loss.item() == pytest.approx(math.log(2) + 3 * unsupervised + 5 * fairness)
    assert chosen.asked == ["weak", "strong", "weak"]
    strong_views, weak_views = "U0 strong, U1 strong, U2 strong, U3 strong", "U0 weak, U1 weak, U2 weak, U3 weak"
    assert chosen.seen == ["L0 weak", strong_views, weak_views]


def test_fairness_is_nothing_where_no_row_is_sure() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = fairness_loss(
        torch.softmax(logits, -1), torch.zeros(4, dtype=torch.bool), torch.full((3,), 1 / 3), torch.full((3,), 1 / 3)
    )
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0
    assert gradient.abs().max() == 0


def test_fixed_threshold_and_no_fairness_is_fixmatch(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = [3 * torch.randn(n, 3, generator=generator) for n in (4, 30, 30)]
    batch = make_batch(labels=[0, 1, 2, 0], n_unlabeled=30)
    system = make_system("freematch", decay=1, fairness_weight=0)
    system.adaptive.threshold.fill_(0.8)
    loss, metrics = system.loss(batch, learner(*logits))
    expected, reference = make_system("fixmatch", threshold=0.8).loss(batch, learner(*logits))
    assert 0.1 < metrics["pseudo_label_rate"] < 0.9
    assert loss.item() == pytest.approx(expected.item())
    assert metrics["pseudo_label_rate"] == reference["pseudo_label_rate"]


def test_threshold_rises_as_the_network_grows_surer(make_system: Callable[..., Any]) -> None:
    """The paper's motivation: the threshold starts low and rises with confidence, without a schedule."""
    system = make_system("freematch", decay=0.9)
    seen = []
    for sharpness in (0, 1, 2, 4, 8):
        system.adaptive.adapt(torch.softmax(sharpness * torch.eye(3), -1))
        seen.append(system.adaptive.threshold.item())
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(1 / 3)


def test_limits_hold_the_common_threshold_and_classes_keep_their_share_of_it(make_system: Callable[..., Any]) -> None:
    """As on SVHN: .9 while the running threshold is below, .95 once it is above; the estimate itself is not touched."""
    system = make_system("freematch", decay=0.0, least_threshold=0.9, most_threshold=0.95)
    system.adaptive.adapt(torch.tensor([[0.6, 0.2, 0.2], [0.6, 0.3, 0.1]]))
    assert system.adaptive.threshold.item() == pytest.approx(0.6)
    assert system.adaptive.thresholds().tolist() == pytest.approx([0.9, 0.9 * 0.25 / 0.6, 0.9 * 0.15 / 0.6])
    system.adaptive.adapt(torch.eye(3))
    assert system.adaptive.thresholds().tolist() == pytest.approx([0.95] * 3)


def test_limits_in_the_wrong_order_are_an_error(make_system: Callable[..., Any]) -> None:
    with pytest.raises(
        InputError, match=r"least_threshold 0\.9: must be at most --method-settings most_threshold 0\.5"
    ):
        make_system("freematch", least_threshold=0.9, most_threshold=0.5)


def test_published_settings(make_system: Callable[..., Any]) -> None:
    """The paper: m = .999, and λ_u = 1 without limits; the authors' library USB: w_f = .001 on CIFAR-10, 40 labels."""
    settings = make_system("freematch").settings
    assert (settings.decay, settings.unlabeled_weight, settings.fairness_weight) == (0.999, 1, 0.001)
    assert (settings.least_threshold, settings.most_threshold) == (0, 1)

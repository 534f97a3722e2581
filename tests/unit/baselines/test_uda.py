"""UDA: KL with sharpened targets by hand, its schedules, and its limits."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dpssl.baselines.uda import signal_limit


def log(*probabilities: float) -> list[float]:
    return [math.log(p) for p in probabilities]


def test_divergence_by_hand(make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any) -> None:
    # (.8, .2) at T = .5 is (16, 1) / 17; KL against (.5, .5) is Σ q log(2 q). The row at .6 is not sure.
    chosen = learner(
        torch.zeros(1, 2),
        torch.tensor([log(0.5, 0.5), log(0.9, 0.1)]),
        torch.tensor([log(0.8, 0.2), log(0.6, 0.4)]),
    )
    system = make_system("uda", temperature=0.5, threshold=0.8, unlabeled_weight=2, task={"n_classes": 2})
    loss, metrics = system.loss(make_batch(n_unlabeled=2), chosen)
    expected = (16 / 17 * math.log(32 / 17) + 1 / 17 * math.log(2 / 17)) / 2
    assert metrics["unlabeled_loss"].item() == pytest.approx(expected)
    assert metrics["pseudo_label_rate"].item() == 0.5
    assert loss.item() == pytest.approx(math.log(2) + 2 * expected)
    assert chosen.asked == ["weak", "strong", "weak"]
    assert chosen.seen == ["L0 weak", "U0 strong, U1 strong", "U0 weak, U1 weak"]


def test_published_settings(make_system: Callable[..., Any]) -> None:
    """The paper: β = .8 and τ = .4 on CIFAR-10 and SVHN."""
    settings = make_system("uda").settings
    assert (settings.threshold, settings.temperature, settings.annealing) == (0.8, 0.4, "none")


def test_schedules_run_from_one_over_c_to_one() -> None:
    """The paper's three schedules: η from 1/K to 1; log rises early, exp late, linear between."""
    at = {name: [signal_limit(name, torch.tensor(t), 4).item() for t in (0.0, 0.5, 1.0)] for name in
          ("linear", "log", "exp")}  # fmt: skip
    assert at["linear"] == pytest.approx([0.25, 0.625, 1])
    assert at["log"] == pytest.approx([0.25, 0.25 + 0.75 * (1 - math.exp(-2.5)), 0.25 + 0.75 * (1 - math.exp(-5))])
    assert at["exp"] == pytest.approx([0.25 + 0.75 * math.exp(-5), 0.25 + 0.75 * math.exp(-2.5), 1])
    assert at["log"][1] > at["linear"][1] > at["exp"][1]


def test_annealing_leaves_out_what_is_learnt_too_well(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    """At the start of a linear schedule η = 1/2 of two classes: the image at .9 is left out, that at .25 counts."""
    system = make_system("uda", annealing="linear", task={"n_classes": 2})
    labeled = torch.tensor([log(0.9, 0.1), log(0.25, 0.75)])
    _, metrics = system.loss(make_batch(labels=[0, 0]), learner(labeled, torch.zeros(1, 2), torch.zeros(1, 2)))
    assert metrics["labeled_loss"].item() == pytest.approx(math.log(4))


def test_annealing_follows_the_steps_of_training(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    """Linear, four steps, two classes: η = 1/2, 5/8, 3/4, 7/8, 1, so images at .25, .7 and .9 come in one by one."""
    system = make_system("uda", annealing="linear", task={"n_classes": 2, "n_steps": 4})
    labeled = torch.tensor([log(0.25, 0.75), log(0.7, 0.3), log(0.9, 0.1)])
    found = []
    for _ in range(5):
        chosen = learner(labeled, torch.zeros(1, 2), torch.zeros(1, 2))
        found.append(system.loss(make_batch(labels=[0, 0, 0]), chosen)[0].item())  # unsure and alike: nothing is added
    one, two, three = math.log(4), -math.log(0.25 * 0.7) / 2, -math.log(0.25 * 0.7 * 0.9) / 3
    assert found == pytest.approx([one, one, two, two, three])


def test_without_sharpening_annealing_and_threshold_it_is_a_plain_divergence(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    generator = torch.Generator().manual_seed(0)
    labeled, strong, weak = (torch.randn(n, 3, generator=generator) for n in (2, 9, 9))
    system = make_system("uda", temperature=1, threshold=0)
    loss, _ = system.loss(make_batch(labels=[0, 1], n_unlabeled=9), learner(labeled, strong, weak))
    divergence = F.kl_div(strong.log_softmax(-1), weak.softmax(-1), reduction="batchmean")
    assert loss.item() == pytest.approx((F.cross_entropy(labeled, torch.tensor([0, 1])) + divergence).item())


def test_a_sharp_temperature_is_fixmatch(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = [3 * torch.randn(n, 3, generator=generator) for n in (4, 30, 30)]
    batch = make_batch(labels=[0, 1, 2, 0], n_unlabeled=30)
    uda, _ = make_system("uda", temperature=0.001, threshold=0.8).loss(batch, learner(*logits))
    fixmatch, _ = make_system("fixmatch", threshold=0.8).loss(batch, learner(*logits))
    assert uda.item() == pytest.approx(fixmatch.item(), rel=1e-4)

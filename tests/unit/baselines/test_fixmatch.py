"""FixMatch by hand, and its limits."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch


def log(*probabilities: float) -> list[float]:
    return [math.log(p) for p in probabilities]


def test_each_term_by_hand(make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any) -> None:
    # H(0, (.5, .25, .25)) = log 2. The first unlabelled image is sure (.8) of class 1, of which its strong view gives
    # .1: log 10. The second (.6) is not. The mean over both is log(10) / 2.
    chosen = learner(
        torch.tensor([log(0.5, 0.25, 0.25)]),
        torch.tensor([log(0.6, 0.1, 0.3), log(0.1, 0.8, 0.1)]),
        torch.tensor([log(0.1, 0.8, 0.1), log(0.6, 0.2, 0.2)]),
    )
    system = make_system("fixmatch", threshold=0.7, unlabeled_weight=3)
    loss, metrics = system.loss(make_batch(labels=[0], n_unlabeled=2), chosen)
    assert metrics["labeled_loss"].item() == pytest.approx(math.log(2))
    assert metrics["unlabeled_loss"].item() == pytest.approx(math.log(10) / 2)
    assert metrics["pseudo_label_rate"].item() == 0.5
    assert loss.item() == pytest.approx(math.log(2) + 3 * math.log(10) / 2)
    assert chosen.asked == ["weak", "strong", "weak"]


def test_published_settings(make_system: Callable[..., Any]) -> None:
    """Table 4 of the paper: τ = .95 and λ_u = 1."""
    settings = make_system("fixmatch").settings
    assert (settings.threshold, settings.unlabeled_weight) == (0.95, 1.0)


def test_the_weak_view_gets_no_gradient(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    weak = torch.tensor([log(0.98, 0.01, 0.01)], requires_grad=True)
    strong = torch.zeros(1, 3, requires_grad=True)
    loss, _ = make_system("fixmatch").loss(make_batch(), learner(torch.zeros(1, 3), strong, weak))
    for_weak, for_strong = torch.autograd.grad(loss, [weak, strong], allow_unused=True)
    assert for_weak is None
    assert for_strong is not None


def test_it_trusts_from_the_threshold_on(make_system: Callable[..., Any]) -> None:
    rows = torch.tensor([[0.75, 0.25, 0.0], [0.5, 0.5, 0.0]])
    assert make_system("fixmatch", threshold=0.75).trusts(rows).tolist() == [True, False]

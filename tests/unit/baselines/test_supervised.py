"""Supervised learning, on the given labels and on all: its loss by hand, and what other methods are without theirs."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dpssl.baselines.registry import SYSTEMS
from dpssl.baselines.trainer import train_baseline
from dpssl.data.batches import ImageBank
from dpssl.training.watch import Watch

BOTH = ["supervised", "fully-supervised"]


@pytest.mark.parametrize("method", BOTH)
def test_cross_entropy_by_hand(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any, method: str
) -> None:
    # H(0, (.5, .25, .25)) = log 2 and H(2, (.25, .5, .25)) = log 4; their mean is 1.5 log 2.
    chosen = learner(torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]).log())
    loss, metrics = make_system(method).loss(make_batch(labels=[0, 2], n_unlabeled=5), chosen)
    assert loss.item() == pytest.approx(1.5 * math.log(2))
    assert {name: value.item() for name, value in metrics.items()} == {"labeled_loss": loss.item()}
    assert chosen.asked == ["weak"]
    assert chosen.seen == ["L0 weak, L1 weak"]  # the unlabelled are not looked at


@pytest.mark.parametrize("method", BOTH)
def test_the_gradient_is_prediction_minus_label(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any, method: str
) -> None:
    """Bridle, 1990: the gradient of a softmax's cross-entropy is p - y. A network that knows nothing costs log C."""
    logits = torch.zeros(1, 4, requires_grad=True)
    loss, _ = make_system(method, task={"n_classes": 4}).loss(make_batch(labels=[1]), learner(logits))
    assert loss.item() == pytest.approx(math.log(4))
    assert torch.autograd.grad(loss, logits)[0][0].tolist() == pytest.approx([0.25, -0.75, 0.25, 0.25])


def test_both_are_one_where_every_image_is_labelled(
    digits: tuple[ImageBank, torch.Tensor], tiny_config: Callable[..., Any]
) -> None:
    """The ceiling differs from the floor in the labels it is handed and in nothing else."""
    bank, _ = digits
    every_label = torch.arange(len(bank)) % 3
    floor, ceiling = (train_baseline(bank, every_label, 3, tiny_config(m), Watch(progress=False)) for m in BOTH)
    weights = ceiling.network.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in floor.network.state_dict().items())
    assert [method for method, system in SYSTEMS.items() if system.uses_all_labels] == ["fully-supervised"]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("pi-model", {"ramp": 0}),
        ("uda", {}),
        ("fixmatch", {}),
        ("flexmatch", {}),
        ("freematch", {"fairness_weight": 0}),
    ],
)
def test_a_method_without_its_unlabelled_loss_is_supervised(
    make_system: Callable[..., Any],
    make_batch: Callable[..., Any],
    learner: Any,
    method: str,
    settings: dict[str, Any],
) -> None:
    """λ_u = 0, the limit in which every such comparison has its floor."""
    generator = torch.Generator().manual_seed(0)
    logits = [3 * torch.randn(n, 3, generator=generator) for n in (4, 9, 9)]
    batch = make_batch(labels=[0, 1, 2, 0], n_unlabeled=9)
    expected, _ = make_system("supervised").loss(batch, learner(logits[0]))
    loss, metrics = make_system(method, unlabeled_weight=0, **settings).loss(batch, learner(*logits))
    assert metrics["unlabeled_loss"].item() > 0.1
    assert loss.item() == expected.item()

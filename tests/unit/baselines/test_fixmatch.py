"""FixMatch by hand, and its limits."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dpssl.baselines.system import Batch, Learner
from dpssl.baselines.trainer import start
from dpssl.data.batches import ImageBank, LabeledImages


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
    assert chosen.seen == ["L0 weak", "U0 strong, U1 strong", "U0 weak, U1 weak"]


def test_published_settings(make_system: Callable[..., Any]) -> None:
    """The paper's hyperparameters: τ = .95 and λ_u = 1."""
    settings = make_system("fixmatch").settings
    assert (settings.threshold, settings.unlabeled_weight) == (0.95, 1.0)


def test_it_trusts_from_the_threshold_on(make_system: Callable[..., Any]) -> None:
    rows = torch.tensor([[0.75, 0.25, 0.0], [0.5, 0.5, 0.0]])
    assert make_system("fixmatch", threshold=0.75).trusts(rows).tolist() == [True, False]


def test_a_step_of_the_loop_is_fixmatch_as_published(
    digits: tuple[ImageBank, torch.Tensor], tiny_config: Callable[..., Any]
) -> None:
    """Loss and gradients of a real network against Sohn et al. 2020, written out: one joint pass, then two terms."""
    bank, given = digits
    plain = {"flip": False, "shift": 0.0, "n_ops": 0, "cutout": 0.0}  # so that every view is the image itself
    config = tiny_config("fixmatch", "threshold=0.5", **plain)
    network, system = start(config, 3, bank, LabeledImages.of(given))
    network.head.weight.data.mul_(2)  # so that some predictions are sure and some are not
    reference = copy.deepcopy(network)
    batch = Batch(bank.images[:6], torch.arange(6) % 3, bank.images[6:30], torch.arange(6, 30))

    logits = reference(bank.network_input(torch.cat([batch.labeled, batch.unlabeled, batch.unlabeled])))
    labeled, strong, weak = logits[:6], logits[6:30], logits[30:]
    confidence, pseudo_labels = weak.detach().softmax(-1).max(-1)
    mask = (confidence >= 0.5).float()
    assert 0 < mask.mean() < 1, "the batch must have both sure and unsure images, or the mask is not tested"
    expected = F.cross_entropy(labeled, batch.labels)
    expected = expected + (F.cross_entropy(strong, pseudo_labels, reduction="none") * mask).mean()
    expected.backward()

    loss, metrics = system.loss(batch, Learner(network, dict, bank, config, torch.Generator().manual_seed(0)))
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert metrics["pseudo_label_rate"].item() == pytest.approx(mask.mean().item())
    for gradient, parameter in zip(gradients, reference.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-5)

"""Eq. 2, stochastic multiple-choice learning: L = min_k H(y, p_k), the limit floor(ρK) = 1 of Eq. 4."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.labeling.losses import count_specialists, mcl_loss


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(20, 5, 3, generator=generator, dtype=torch.float64)
    return logits, torch.randint(3, (20,), generator=generator)


def test_one_specialist_is_the_best_model(batch: tuple[Tensor, Tensor]) -> None:
    logits, labels = batch
    loss, winners = mcl_loss(logits, labels, count_specialists(5, 0.2))
    for b in range(len(labels)):
        entropies = [F.cross_entropy(logits[b, k], labels[b]).item() for k in range(5)]
        assert loss[b].item() == pytest.approx(min(entropies))
        assert winners[b].nonzero().flatten().tolist() == [entropies.index(min(entropies))]


def test_only_the_best_model_learns(batch: tuple[Tensor, Tensor]) -> None:
    logits, labels = batch
    logits.requires_grad_()
    loss, winners = mcl_loss(logits, labels, 1)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert torch.equal(gradient.abs().sum(-1) > 0, winners)


def test_a_tie_has_one_winner() -> None:
    loss, winners = mcl_loss(torch.zeros(3, 4, 2), torch.zeros(3, dtype=torch.long), 1)
    assert loss.tolist() == pytest.approx([0.6931472] * 3)
    assert winners.sum(1).tolist() == [1, 1, 1]

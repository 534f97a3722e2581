"""Eq. 4, multiple-choice learning: the smallest mean of floor(ρK) cross-entropies H(y, p_k)."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.labeling.losses import mcl_loss
from dpssl.labeling.objective import MultipleChoice


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(15, 5, 3, generator=generator, dtype=torch.float64)
    return logits, torch.randint(3, (15,), generator=generator)


@pytest.mark.parametrize("n_specialists", [1, 2, 3, 5])
def test_equals_the_minimum_over_all_subsets(batch: tuple[Tensor, Tensor], n_specialists: int) -> None:
    logits, labels = batch
    loss, winners = mcl_loss(logits, labels, n_specialists)
    for b in range(len(labels)):
        entropies = [-math.log(logits[b, k].softmax(0)[labels[b]]) for k in range(5)]
        subsets = list(itertools.combinations(range(5), n_specialists))
        means = [sum(entropies[k] for k in subset) / n_specialists for subset in subsets]
        assert loss[b].item() == pytest.approx(min(means))
        assert winners[b].nonzero().flatten().tolist() == list(subsets[means.index(min(means))])


def test_by_hand() -> None:
    # p_k(y) = 1/2, 1/4, 1/8: the two smallest losses are log 2 and log 4, their mean 1.5 log 2.
    p = torch.tensor([[[0.5, 0.5], [0.25, 0.75], [0.125, 0.875]]])
    loss, winners = mcl_loss(p.log(), torch.tensor([0]), 2)
    assert loss.item() == pytest.approx(1.5 * math.log(2))
    assert winners.tolist() == [[True, True, False]]


def test_all_lfs_are_a_plain_ensemble(batch: tuple[Tensor, Tensor]) -> None:
    logits, labels = batch
    loss, winners = mcl_loss(logits, labels, 5)
    ensemble = torch.stack([F.cross_entropy(logits[:, k], labels, reduction="none") for k in range(5)]).mean(0)
    torch.testing.assert_close(loss, ensemble)
    assert winners.all()


def test_only_the_winners_learn(batch: tuple[Tensor, Tensor]) -> None:
    logits, labels = batch
    logits.requires_grad_()
    loss, winners = mcl_loss(logits, labels, 2)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert torch.equal(gradient.abs().sum(-1) > 0, winners)
    assert winners.sum(1).tolist() == [2] * 15


def test_gradient(batch: tuple[Tensor, Tensor]) -> None:
    logits, labels = batch
    assert torch.autograd.gradcheck(lambda x: mcl_loss(x, labels, 2)[0], (logits.requires_grad_(),))


def test_the_first_phase_is_weight_times_eq_4_without_the_abstain_output(batch: tuple[Tensor, Tensor]) -> None:
    logits, labels = batch
    with_abstain = torch.cat([logits, torch.full((15, 5, 1), 9.0)], -1).requires_grad_()
    phase = MultipleChoice(n_lfs=5, n_classes=3, n_specialists=2, weight=0.5)
    loss, _ = phase.loss(with_abstain, labels)
    expected, winners = mcl_loss(logits, labels, 2)
    assert loss.item() == pytest.approx(0.5 * expected.mean().item())
    (gradient,) = torch.autograd.grad(loss, with_abstain)
    assert (gradient[..., 3] == 0).all()
    for c, k in itertools.product(range(3), range(5)):
        assert phase.winners.shares()[k, c].item() == pytest.approx(winners[labels == c, k].double().mean().item())

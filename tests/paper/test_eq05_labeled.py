"""Eq. 5: L_l = Σ_k 1(y ∈ τ_k) H(y, p̄_k) + 1(y ∉ τ_k) H(0, p̄_k), p̄_k over τ_k and "abstain"."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.labeling.losses import abstain_targets, labeled_loss
from dpssl.nets.lf_heads import LFNetwork
from dpssl.nets.wide_resnet import WideResNet

TAU = torch.tensor([[True, False, True], [False, True, False], [True, True, True], [False, False, False]])


@pytest.fixture
def network() -> LFNetwork:
    network = LFNetwork(WideResNet(10, 1, n_channels=1), n_lfs=4, n_classes=3, feature_transform=False)
    network.specialties.copy_(TAU)
    return network


@pytest.fixture
def raw_logits() -> Tensor:
    return torch.randn(12, 4, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def labeled_loss_by_the_book(raw: Tensor, label: int, tau: Tensor) -> float:
    """Eq. 5 for one sample: raw logits (K, C + 1), the abstain output last."""
    total = 0.0
    for k in range(len(tau)):
        n_classes = tau.shape[1]
        allowed = [c for c in range(n_classes) if tau[k, c]] + [n_classes]
        said = label if tau[k, label] else n_classes
        total -= math.log(math.exp(raw[k, said]) / sum(math.exp(raw[k, c]) for c in allowed))
    return total


def test_equals_the_slow_loop(network: LFNetwork, raw_logits: Tensor) -> None:
    labels = torch.arange(12) % 3
    loss = labeled_loss(network.abstain_logits(raw_logits), labels, TAU)
    expected = [labeled_loss_by_the_book(raw_logits[b], int(labels[b]), TAU) for b in range(12)]
    assert loss.tolist() == pytest.approx(expected)


def test_by_hand(network: LFNetwork) -> None:
    # Equal logits, y = 0. LF 1 has 2 classes and abstain, LF 2 has 1 (and abstains), LF 3 has 3; LF 4 is dead.
    loss = labeled_loss(network.abstain_logits(torch.zeros(1, 4, 4)), torch.tensor([0]), TAU)
    assert loss.item() == pytest.approx(math.log(3) + math.log(2) + math.log(4) + 0)


def test_abstain_terms_have_their_weight(network: LFNetwork) -> None:
    loss = labeled_loss(network.abstain_logits(torch.zeros(1, 4, 4)), torch.tensor([0]), TAU, abstain_weight=0.25)
    assert loss.item() == pytest.approx(math.log(3) + 0.25 * math.log(2) + math.log(4) + 0)


def test_targets() -> None:
    assert abstain_targets(torch.tensor([0, 1]), TAU).tolist() == [[0, 3, 0, 3], [3, 1, 1, 3]]


def test_without_abstaining_every_lf_is_a_plain_classifier(network: LFNetwork, raw_logits: Tensor) -> None:
    network.specialties.fill_(True)
    network.abstains = False
    labels = torch.arange(12) % 3
    loss = labeled_loss(network.abstain_logits(raw_logits), labels, network.specialties)
    expected = sum(F.cross_entropy(raw_logits[:, k, :3], labels, reduction="none") for k in range(4))
    torch.testing.assert_close(loss, expected)


def test_classes_outside_tau_and_dead_lfs_do_not_learn(network: LFNetwork, raw_logits: Tensor) -> None:
    raw_logits.requires_grad_()
    loss = labeled_loss(network.abstain_logits(raw_logits), torch.arange(12) % 3, TAU)
    (gradient,) = torch.autograd.grad(loss.sum(), raw_logits)
    learns = (gradient != 0).any(0)  # (K, C + 1)
    assert torch.equal(learns[:, :3], TAU)
    assert learns[:, 3].tolist() == [True, True, True, False]


def test_gradient(network: LFNetwork, raw_logits: Tensor) -> None:
    labels = torch.arange(12) % 3
    assert torch.autograd.gradcheck(
        lambda x: labeled_loss(network.abstain_logits(x), labels, TAU), (raw_logits.requires_grad_(),)
    )

"""Images that only make targets: beside those that are learnt from, in one pass or apart."""

import copy

import pytest
import torch
from torch import Tensor

from dpssl.checks import check
from dpssl.config import Config, load_preset, with_values
from dpssl.errors import InputError
from dpssl.labeling.train import build_network, view_forward
from dpssl.nets.lf_heads import LFNetwork, initialize_heads
from dpssl.nets.wide_resnet import initialize

N_LEARNT = 5


@pytest.fixture
def network() -> LFNetwork:
    generator = torch.Generator().manual_seed(0)
    network = build_network(load_preset("digits"), 10, 1).double()
    initialize(network.backbone, generator)
    initialize_heads(network.heads, generator)
    return network.train()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(9, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def logits_by(network: LFNetwork, images: Tensor, **values: object) -> tuple[Tensor, LFNetwork]:
    """Logits of a fresh copy, and the copy."""
    fresh = copy.deepcopy(network)
    settings = with_values(Config(), values).labeling
    return view_forward(fresh.backbone, fresh.read, N_LEARNT, settings)(images, None), fresh


def test_without_their_gradient_targets_are_what_they_are_with_it(network: LFNetwork, images: Tensor) -> None:
    whole, first = logits_by(network, images)
    left_out, second = logits_by(network, images, weak_gradient=False)
    torch.testing.assert_close(left_out, whole)
    torch.testing.assert_close(dict(second.named_buffers()), dict(first.named_buffers()))
    again, third = logits_by(network, images, weak_gradient=False)
    alone = torch.autograd.grad(left_out[:N_LEARNT].square().sum(), list(second.backbone.parameters()))
    both = torch.autograd.grad(again.square().sum(), list(third.backbone.parameters()))
    torch.testing.assert_close(both, alone, msg="nothing is learnt from targets")


def test_apart_they_have_statistics_of_their_own(network: LFNetwork, images: Tensor) -> None:
    whole, _ = logits_by(network, images)
    apart, _ = logits_by(network, images, joint_forward=False, weak_gradient=False)
    assert not torch.allclose(apart, whole)
    alone, _ = logits_by(network, images[:N_LEARNT])
    torch.testing.assert_close(apart[:N_LEARNT], alone)


def test_weak_views_that_are_learnt_from_keep_their_gradient(network: LFNetwork, images: Tensor) -> None:
    whole, first = logits_by(network, images)
    learnt, second = logits_by(network, images, weak_gradient=False, abstain_view="weak")
    gradients = [
        torch.autograd.grad(found[N_LEARNT:].square().sum(), [fresh.backbone.stem.weight])[0]
        for found, fresh in ((whole, first), (learnt, second))
    ]
    assert gradients[0].any()
    torch.testing.assert_close(gradients[1], gradients[0])


def test_another_network_cannot_leave_them_out() -> None:
    config = with_values(load_preset("digits"), {"backbone": "timm/resnet18", "weak_gradient": False})
    with pytest.raises(InputError, match="--weak-gradient false: only with --backbone wide-resnet"):
        check(config)

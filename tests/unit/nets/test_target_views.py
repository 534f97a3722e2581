"""Images that only make targets: beside those that are learnt from, in one pass or apart."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from dpssl.baselines.system import Learner
from dpssl.baselines.trainer import start
from dpssl.checks import check
from dpssl.config import Config, load_preset, with_values
from dpssl.data.batches import ImageBank, LabeledImages
from dpssl.data.share import Share
from dpssl.errors import InputError
from dpssl.labeling import train
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


def test_methods_of_fit_leave_them_out_too() -> None:
    generator = torch.Generator().manual_seed(0)
    views = [torch.randint(256, (n, 1, 8, 8), dtype=torch.uint8, generator=generator) for n in (N_LEARNT, 4)]
    bank, found = ImageBank.from_numpy(views[0].permute(0, 2, 3, 1).numpy(), torch.device("cpu")), []
    for weak_gradient in (True, False):
        config = with_values(load_preset("digits"), {"method": "fixmatch", "weak_gradient": weak_gradient})
        classifier, _ = start(config, 10, bank, LabeledImages.of(torch.zeros(N_LEARNT, dtype=torch.int64)))
        learner = Learner(classifier, dict, bank, config, generator)
        learnt, targets = learner.logits(*views, n_targets=1)
        gradient = torch.autograd.grad(learnt.square().sum(), list(classifier.backbone.parameters()))
        assert not targets.requires_grad
        found.append((learnt, targets, torch.cat([part.flatten() for part in gradient])))
    for place in range(2):
        torch.testing.assert_close(found[1][place], found[0][place], rtol=1e-3, atol=1e-4)
    assert 0.5 < torch.nn.functional.cosine_similarity(found[0][2], found[1][2], dim=0) < 0.99999


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"backbone": "timm/resnet18"}, "only with --backbone wide-resnet"),
        ({"abstain_view": "weak"}, "with --abstain-view weak the weak views are learnt from"),
    ],
)
def test_where_they_cannot_be_left_out_it_is_said(values: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=f"--weak-gradient false: {problem}"):
        check(with_values(load_preset("digits"), {**values, "weak_gradient": False}))


@pytest.mark.parametrize(
    ("n_processes", "device", "fits", "values", "is_refused"),
    [
        (2, "cuda", False, {"weak_gradient": False}, True),
        (1, "cuda", False, {"weak_gradient": False}, False),
        (2, "cpu", False, {"weak_gradient": False}, False),
        (2, "cuda", True, {"weak_gradient": False}, False),
        (2, "cuda", False, {}, False),
        (2, "cuda", False, {"weak_gradient": False, "joint_forward": False}, False),
    ],
)
def test_several_gpus_need_channels_that_the_kernels_take(
    network: LFNetwork,
    monkeypatch: pytest.MonkeyPatch,
    n_processes: int,
    device: str,
    fits: bool,
    values: dict[str, object],
    is_refused: bool,
) -> None:
    monkeypatch.setattr(train.distributed, "share", lambda: Share(0, n_processes))
    monkeypatch.setattr(network.backbone, "fits_kernels", fits)
    settings = with_values(Config(), values).labeling
    with pytest.raises(InputError, match="on several GPUs only with Triton") if is_refused else nullcontext():
        train.check_left_out(network, settings, torch.device(device))

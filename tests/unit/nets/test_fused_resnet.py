"""The training pass written by hand equals the module's own, forward and backward."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input, conv2d_weight

from dpssl.nets import conv_kernels, fused_resnet
from dpssl.nets import norm_kernels as kernels
from dpssl.nets.fused_resnet import train_pass
from dpssl.nets.wide_resnet import LEAKY_SLOPE, WideResNet, initialize


def network_of(width: int, strides: tuple[int, ...] = (1, 2, 2)) -> WideResNet:
    """A small network in float64 whose batch norms are not at identity."""
    generator = torch.Generator().manual_seed(width)
    network = WideResNet(10, width, strides, 3, bn_momentum=0.1).double()
    initialize(network, generator)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.uniform_(-0.5, 0.5, generator=generator)
    return network


def images_and_gradient(network: WideResNet, n_images: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    images = torch.randn(n_images, 3, 8, 8, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        shape = copy.deepcopy(network)(images).shape
    return images, torch.randn(shape, dtype=torch.float64, generator=generator)


def by_modules(network: WideResNet, images: Tensor) -> Tensor:
    """What autograd differentiates: the network's own layers."""
    return F.leaky_relu(network.bn(network.blocks(network.stem(images))), LEAKY_SLOPE)


@pytest.fixture(params=[True, False], ids=["by torch", "by our formulas"])
def by_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_resnet, "uses_library", lambda *_: request.param)


@pytest.mark.usefixtures("by_library")
@pytest.mark.parametrize("width", [1, 2, 3])  # 3: channels that no kernel takes
@pytest.mark.parametrize("strides", [(1, 2, 2), (1, 1, 2)])
def test_the_whole_batch_gives_what_the_modules_give(width: int, strides: tuple[int, ...]) -> None:
    network = network_of(width, strides)
    reference = copy.deepcopy(network)
    images, gradient = images_and_gradient(network)
    expected, found = by_modules(reference, images), train_pass(network, images)
    torch.testing.assert_close(found, expected)
    for name, a, b in zip(
        dict(network.named_parameters()),
        torch.autograd.grad(found, list(network.parameters()), gradient),
        torch.autograd.grad(expected, list(reference.parameters()), gradient),
        strict=True,
    ):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")
    for (name, a), b in zip(network.named_buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


class NormOfLearnt(nn.BatchNorm2d):
    """One of the first `n_learnt` images alone, moved and stretched by constants to what that of all images gives."""

    n_learnt = 4

    def forward(self, x: Tensor) -> Tensor:
        def norm(images: Tensor) -> tuple[Tensor, Tensor]:
            variance, mean = torch.var_mean(images, (0, 2, 3), correction=0, keepdim=True)
            return mean, (variance + self.eps).sqrt()

        mean, deviation = norm(x[: self.n_learnt])
        common_mean, common_deviation = (part.detach() for part in norm(x))
        stretch = deviation.detach() / common_deviation
        move = (mean.detach() - common_mean) / common_deviation
        scale, shift = (parameter.view(1, -1, 1, 1) for parameter in (self.weight, self.bias))
        return ((x - mean) / deviation * stretch + move) * scale + shift


@pytest.mark.usefixtures("by_library")
def test_images_that_only_make_targets_enter_the_statistics_alone() -> None:
    """Beside autograd, through norms whose derivatives are those of the learnt images' own."""
    network = network_of(2)
    reference, whole = copy.deepcopy(network), copy.deepcopy(network)
    for module in reference.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.__class__ = NormOfLearnt
    images, gradient = images_and_gradient(network)
    n_learnt = NormOfLearnt.n_learnt
    learnt, targets = network.split_forward(images, n_learnt)
    assert learnt.requires_grad
    assert not targets.requires_grad
    expected = by_modules(whole, images)
    torch.testing.assert_close(torch.cat([learnt, targets]), expected)
    for (name, a), b in zip(network.named_buffers(), whole.buffers(), strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")
    of_reference = by_modules(reference, images)[:n_learnt]
    for name, a, b in zip(
        dict(network.named_parameters()),
        torch.autograd.grad(learnt, list(network.parameters()), gradient[:n_learnt]),
        torch.autograd.grad(of_reference, list(reference.parameters()), gradient[:n_learnt]),
        strict=True,
    ):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


def test_without_a_gradient_the_pass_keeps_nothing_and_moves_the_running_statistics() -> None:
    network = network_of(2)
    reference = copy.deepcopy(network)
    images, _ = images_and_gradient(network)
    with torch.no_grad():
        found = train_pass(network, images)
    torch.testing.assert_close(found, by_modules(reference, images).detach())
    assert not found.requires_grad
    torch.testing.assert_close(network.bn.running_mean, reference.bn.running_mean)


def test_narrow_convolutions_go_to_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of stride 1 from 3 to 32 channels; no kernel makes the gradient of the images, which nobody asks for."""
    network = network_of(2)
    reference = copy.deepcopy(network)
    images, gradient = images_and_gradient(network)
    called: list[str] = []

    def convolve(x: Tensor, weight: Tensor) -> Tensor:
        called.append("forward")
        return F.conv2d(x, weight, padding=1)

    def input_gradient(dy: Tensor, weight: Tensor) -> Tensor:
        called.append("input")
        shape = (len(dy), weight.shape[1], *dy.shape[2:])
        return conv2d_input(shape, weight, dy, padding=1)

    def weight_gradient(dy: Tensor, x: Tensor) -> Tensor:
        called.append("weight")
        return conv2d_weight(x, (dy.shape[1], x.shape[1], 3, 3), dy, padding=1)

    monkeypatch.setattr(conv_kernels, "_on_gpu", lambda x: True)
    for replacement in (convolve, input_gradient, weight_gradient):
        monkeypatch.setattr(conv_kernels, replacement.__name__, replacement)
    found = train_pass(network, images)
    gradients = torch.autograd.grad(found, list(network.parameters()), gradient)
    expected = by_modules(reference, images)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, list(reference.parameters()), gradient))
    assert [called.count(name) for name in ("forward", "input", "weight")] == [3, 2, 3]


triton_missing = kernels.triton is None or not torch.cuda.is_available()


@pytest.mark.gpu
@pytest.mark.skipif(triton_missing, reason="needs Triton and a GPU")
@pytest.mark.parametrize("channels", [16, 32, 128])
@pytest.mark.parametrize("n_rows", [1000, 65536])
def test_kernels_equal_the_formulas(channels: int, n_rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, other, dy, skip = (torch.randn(n_rows, channels, generator=generator) for _ in range(4))
    weight, bias = torch.rand(channels, generator=generator) + 0.5, torch.randn(channels, generator=generator)

    def passes(device: str) -> list[Tensor]:
        running = torch.zeros(channels, device=device), torch.ones(channels, device=device)
        graded = n_rows // 2
        rows, partials = kernels.add_and_sum(x.to(device), other.to(device))
        norm = kernels.finish_statistics(partials, n_rows, weight.to(device), bias.to(device), *running, 0.1, 1e-3)
        y = kernels.normalize(rows, norm, 0.1)
        sums = kernels.sum_gradient(dy[:graded].to(device), rows[:graded], norm, 0.1)
        dx = kernels.input_gradient(
            dy[:graded].to(device), rows[:graded], norm, sums, n_rows, 0.1, skip[:graded].to(device)
        )
        return [rows, *norm, *running, y, dx, sums / n_rows]

    for a, b in zip(passes("cuda"), passes("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-4)

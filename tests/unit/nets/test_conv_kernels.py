"""nets.conv_kernels against torch's convolution and its gradients in float64: plain code, and the kernels.

The kernels run on a GPU in bfloat16, and where Triton is installed also without one, in its interpreter, in float32:
TRITON_INTERPRET=1.
"""

import os

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, leaky_relu

from dpssl.nets import conv_kernels
from dpssl.nets.conv_kernels import Plan
from dpssl.nets.norm_kernels import Norm

SLOPE = 0.1
SHAPES = [  # images, channels in and out, height, width
    (2, 16, 32, 6, 8),
    (3, 16, 16, 5, 7),  # nothing divides anything
    (1, 3, 16, 9, 16),
]
# Strips that cut rows unevenly; more walks than walkers.
PLANS = [Plan(2, 16, 4, 4, 1, walkers=2), Plan(1, 32, 8, 4, 1, walkers=1), Plan(4, 16, 2, 4, 2, walkers=3)]


@pytest.fixture(params=["plain", "interpreter", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the tensors lie; "interpreter" sends tensors of the CPU to the kernels."""
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
        return "cuda"
    if request.param == "interpreter":
        pytest.importorskip("triton", reason="the kernels need Triton")
        if os.environ.get("TRITON_INTERPRET") != "1":
            pytest.skip("Triton decides at import: set TRITON_INTERPRET=1 to run the kernels without a GPU")
        monkeypatch.setattr(conv_kernels, "_on_gpu", lambda x: True)
    return "cpu"


def draw(*shape: int, device: str) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    drawn = torch.randn(shape, generator=generator).to(device, torch.bfloat16 if device == "cuda" else torch.float32)
    return drawn.contiguous(memory_format=torch.channels_last)


def some_norm(channels: int, device: str) -> Norm:
    """A shift far from zero, so that an activated border would show."""
    generator = torch.Generator().manual_seed(channels)
    return Norm(*(torch.rand(4, channels, generator=generator) + 0.5).to(device))


def activated(x: Tensor, norm: Norm | None) -> Tensor:
    if norm is None:
        return x.double()
    scale, shift = norm.scale.double(), norm.shift.double()
    return leaky_relu(x.double() * scale[:, None, None] + shift[:, None, None], SLOPE)


def assert_close(found: Tensor, wanted: Tensor) -> None:
    """To rounding, of the result and of what was activated on the way."""
    tolerance = 1e-5 if wanted.device.type == "cpu" else 1e-2
    torch.testing.assert_close(found.double(), wanted.double(), rtol=0, atol=tolerance * wanted.abs().max().item())


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fused", [False, True])
def test_forward(device: str, shape: tuple[int, ...], plan: Plan, fused: bool) -> None:
    n, n_in, n_out, height, width = shape
    x, weight = draw(n, n_in, height, width, device=device), draw(n_out, n_in, 3, 3, device=device)
    norm = some_norm(n_in, device) if fused else None
    skip = draw(n, n_out, height, width, device=device) if fused else None
    wanted = conv2d(activated(x, norm), weight.double(), padding=1)
    wanted = wanted if skip is None else wanted + skip.double()

    y = conv_kernels.convolve(x, weight, norm, SLOPE, skip, plan=plan)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert_close(y, wanted)

    y, partials = conv_kernels.convolve_and_sum(x, weight, norm, SLOPE, skip, plan=plan)
    assert_close(y, wanted)
    wide = y.double()  # as rounded
    sums = torch.stack([wide.sum((0, 2, 3)), wide.square().sum((0, 2, 3))])
    torch.testing.assert_close(partials.sum(0).double(), sums, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fused", [False, True])
def test_backward(device: str, shape: tuple[int, ...], plan: Plan, fused: bool) -> None:
    n, n_in, n_out, height, width = shape
    x, weight = draw(n, n_in, height, width, device=device), draw(n_out, n_in, 3, 3, device=device)
    dy = draw(n, n_out, height, width, device=device)
    norm = some_norm(n_in, device) if fused else None
    seen, wide_weight = activated(x, norm).requires_grad_(), weight.double().requires_grad_()
    conv2d(seen, wide_weight, padding=1).backward(dy.double())
    assert seen.grad is not None
    assert wide_weight.grad is not None

    assert_close(conv_kernels.input_gradient(dy, weight, plan=plan), seen.grad)
    dweight = conv_kernels.weight_gradient(dy, x, norm, SLOPE, plan=plan)
    assert dweight.dtype == torch.float32
    assert dweight.is_contiguous(memory_format=torch.channels_last)
    assert_close(dweight, wide_weight.grad)


def test_only_narrow_three_by_three_convolutions_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_kernels, "_on_gpu", lambda x: True)
    x = torch.zeros(1, 16, 4, 4)
    assert conv_kernels.fits(x, torch.zeros(32, 16, 3, 3))
    assert not conv_kernels.fits(x, torch.zeros(32, 16, 1, 1))
    assert not conv_kernels.fits(x, torch.zeros(24, 16, 3, 3))
    assert not conv_kernels.fits(x, torch.zeros(128, 16, 3, 3))

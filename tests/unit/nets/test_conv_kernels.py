"""nets.conv_kernels against torch's convolution and its gradients in float64.

The kernels run on a GPU in bfloat16, and where Triton is installed also without one, in its interpreter, in float32:
TRITON_INTERPRET=1.
"""

import os

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from dpssl.nets import conv_kernels
from dpssl.nets.conv_kernels import Plan

SHAPES = [  # images, channels in and out, height, width
    (2, 16, 32, 6, 8),
    (3, 16, 16, 5, 7),  # nothing divides anything
    (1, 3, 16, 9, 16),
]
# Those of the package; strips that cut rows unevenly; more walks than walkers.
PLANS = [None, Plan(2, 16, 4, 4, 1, walkers=2), Plan(1, 32, 8, 4, 1, walkers=1), Plan(4, 16, 2, 4, 2, walkers=3)]


@pytest.fixture(params=["interpreter", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Where the tensors lie; the interpreter takes those of the CPU."""
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
        return "cuda"
    pytest.importorskip("triton", reason="the kernels need Triton")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton decides at import: set TRITON_INTERPRET=1 to run the kernels without a GPU")
    return "cpu"


def draw(*shape: int, device: str) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    drawn = torch.randn(shape, generator=generator).to(device, torch.bfloat16 if device == "cuda" else torch.float32)
    return drawn.contiguous(memory_format=torch.channels_last)


def assert_close(found: Tensor, wanted: Tensor) -> None:
    """To the rounding of the result."""
    tolerance = 1e-5 if wanted.device.type == "cpu" else 1e-2
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=tolerance * wanted.abs().max().item())


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_convolution_and_its_gradients(device: str, shape: tuple[int, ...], plan: Plan | None) -> None:
    n, n_in, n_out, height, width = shape
    x, weight = draw(n, n_in, height, width, device=device), draw(n_out, n_in, 3, 3, device=device)
    dy = draw(n, n_out, height, width, device=device)
    wide_x, wide_weight = x.double().requires_grad_(), weight.double().requires_grad_()
    wanted = conv2d(wide_x, wide_weight, padding=1)
    wanted_dx, wanted_dweight = torch.autograd.grad(wanted, (wide_x, wide_weight), dy.double())

    y = conv_kernels.convolve(x, weight, plan)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert_close(y, wanted.detach())
    if n_in >= 8:  # nobody asks for the gradient of an image
        assert_close(conv_kernels.input_gradient(dy, weight, plan), wanted_dx)
    dweight = conv_kernels.weight_gradient(dy, x, plan)
    assert dweight.dtype == torch.float32
    assert dweight.is_contiguous(memory_format=torch.channels_last)
    assert_close(dweight, wanted_dweight)


@pytest.mark.parametrize(
    ("shape", "fit"),
    [
        ((32, 16, 3, 3), True),
        ((16, 3, 3, 3), True),
        ((16, 1, 3, 3), False),  # a grey image
        ((3, 16, 3, 3), False),  # the gradient of an image
        ((32, 16, 1, 1), False),
        ((24, 16, 3, 3), False),
        ((64, 64, 3, 3), False),
    ],
)
def test_narrow_three_by_three_convolutions_fit(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], fit: bool
) -> None:
    monkeypatch.setattr(conv_kernels, "_on_gpu", lambda x: True)
    assert conv_kernels.fits(torch.zeros(1, shape[1], 4, 4), torch.zeros(shape)) == fit


def test_nothing_fits_on_a_cpu() -> None:
    assert not conv_kernels.fits(torch.zeros(1, 16, 4, 4, dtype=torch.bfloat16), torch.zeros(32, 16, 3, 3))

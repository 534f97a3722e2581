"""3 x 3 convolutions of narrow channels (stride 1, padding 1, no bias) and their gradients, faster than a library's.

Images (B, C, H, W) and weights (Co, Ci, 3, 3) are channels-last in memory; sums are in float32.

    y = conv(x, weight),    dx = conv(dy, weight turned by half, its input and output exchanged)
    dweight[o, i, u, v] = sum over images and pixels (r, c) of dy[o, r, c] * x[i, r + u - 1, c + v - 1]

`fits` says which tensors the kernels take; the functions below check nothing. Batch norm stays in passes of its own:
kernels that normalised what they loaded, added the shortcut and summed what they wrote took longer than these kernels
and those passes together (results/conv_kernels.json, "tried").
"""

from typing import NamedTuple

import torch
from torch import Tensor

try:
    import triton

    from dpssl.nets import triton_convs as on_gpu
except ModuleNotFoundError:  # a CPU build of torch comes without Triton
    triton = None

FEWEST = 3  # channels; a window of fewer has too few numbers for the matrix unit
WIDEST = 32  # channels that pay; at 64 a library's are faster, and more exceed a multiprocessor's memory
MANY_IMAGES = 768  # from here on a walk down the whole image leaves enough programs
FINISH_CHANNELS, FINISH_PARTIALS = 2, 64  # what one program adds up at a time of their partial results


class Plan(NamedTuple):
    """How the work of a convolution is cut; see nets.triton_convs."""

    span: int  # pixels of a place
    places: int  # that a program takes
    strip: int  # image rows that it walks down; even for a weight gradient
    warps: int
    stages: int  # steps down in flight
    walkers: int = 132  # programs that share the walks of a weight gradient; an H200 has so many multiprocessors


def fits(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels exist here and convolve x with this weight. The weight's gradient asks the same; that of x
    is a convolution of dy with weight.transpose(0, 1)."""
    n_out, n_in, *size = weight.shape
    narrow = FEWEST <= n_in <= WIDEST and 8 <= n_out <= WIDEST and n_out & (n_out - 1) == 0
    return _on_gpu(x) and size == [3, 3] and narrow


def convolve(x: Tensor, weight: Tensor, plan: Plan | None = None) -> Tensor:
    """y (B, Co, H, W) as above."""
    return _launch(x, weight, plan, turn=False)


def input_gradient(dy: Tensor, weight: Tensor, plan: Plan | None = None) -> Tensor:
    """dx (B, Ci, H, W) as above."""
    return _launch(dy, weight, plan, turn=True)


def weight_gradient(dy: Tensor, x: Tensor, plan: Plan | None = None) -> Tensor:
    """dweight (Co, Ci, 3, 3) as above, in float32, channels-last."""
    (n, n_in, height, width), n_out = x.shape, dy.shape[1]
    span, places, strip, warps, stages, walkers = plan or weight_gradient_plan(n_in)
    strip = min(strip, height + height % 2)
    n_columns = triton.next_power_of_2((span + 2) * n_in)
    n_places = n * triton.cdiv(width, span)
    n_walks = triton.cdiv(n_places, places) * triton.cdiv(height, strip)
    n_walkers = min(walkers, n_walks)
    partials = torch.empty(n_walkers, 3, n_columns, span * n_out, device=x.device)
    on_gpu.weight_gradient[(n_walkers,)](
        _channels_last(dy), _channels_last(x), partials, n_places, n_walks,
        height, width, n_in, n_out, n_columns, span, places, strip, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    dweight = torch.empty((n_out, n_in, 3, 3), device=x.device, memory_format=torch.channels_last)
    on_gpu.finish_weight_gradient[(9, triton.cdiv(n_in, FINISH_CHANNELS))](
        partials, dweight, n_walkers, n_in, n_out, n_columns, span, FINISH_CHANNELS, FINISH_PARTIALS
    )
    return dweight


def convolve_plan(n_images: int, n_in: int) -> Plan:
    """The fastest of benchmarks/conv_kernels.py on an H200, forward or for the input gradient."""
    return Plan(2, 64, 32 if n_images >= MANY_IMAGES and n_in >= 8 else 16, 4, 3)


def weight_gradient_plan(n_in: int) -> Plan:
    """The same for the weight gradient."""
    return Plan(2, 64, 16, 4, 3, walkers=264) if n_in < 8 else Plan(2, 64, 32, 4 if n_in <= 16 else 8, 3)


def _launch(x: Tensor, weight: Tensor, plan: Plan | None, *, turn: bool) -> Tensor:
    n, n_in, height, width = x.shape
    n_out = weight.shape[1 if turn else 0]
    span, places, strip, warps, stages, _ = plan or convolve_plan(n, n_in)
    strip = min(strip, height)
    n_places = n * triton.cdiv(width, span)
    n_programs = triton.cdiv(n_places, places) * triton.cdiv(height, strip)
    y = torch.empty((n, n_out, height, width), device=x.device, dtype=x.dtype, memory_format=torch.channels_last)
    on_gpu.convolve[(n_programs,)](
        _channels_last(x), _channels_last(weight), y, n_places,
        height, width, n_in, n_out, triton.next_power_of_2((span + 2) * n_in), span, places, strip, turn,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _on_gpu(x: Tensor) -> bool:
    """Only types of two bytes: wider ones have no exact matrix unit, so a library does as well."""
    return triton is not None and x.is_cuda and x.element_size() == 2

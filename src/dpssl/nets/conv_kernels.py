"""3 x 3 convolutions of narrow channels (stride 1, padding 1, no bias), forward and backward, faster than a library's.

Images (B, C, H, W) and weights (Co, Ci, 3, 3) are channels-last in memory; sums are in float32.

    a = leaky_relu(scale * x + shift) if a norm is given, else x    (outside of the image a is zero, not x)
    y = conv(a, weight) + skip,    dx = conv(dy, weight turned by half, its input and output exchanged)
    dweight[o, i, u, v] = sum over images and pixels (r, c) of dy[o, r, c] * a[i, r + u - 1, c + v - 1]

So a batch norm with its activation costs no pass of its own: it is applied where the convolution loads its input, its
sums are formed where the convolution before it writes its output. `fits` says which tensors the Triton kernels take;
others go the same way in plain tensor code.
"""

from typing import NamedTuple, cast

import torch
from torch import Tensor

from dpssl.nets import norm_kernels
from dpssl.nets.norm_kernels import Norm, as_rows, like

try:
    import triton

    from dpssl.nets import triton_convs as on_gpu
except ModuleNotFoundError:  # a CPU build of torch comes without Triton
    triton = None

aten = torch.ops.aten
WIDEST = (
    32  # channels that pay; at 64 a library's are faster, and for more the weights exceed a multiprocessor's memory
)
FEWEST = 3  # channels; a window of fewer has too few numbers for the matrix unit
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
    """Whether the kernels exist here and take a 3 x 3 convolution of x with this weight, and its gradients."""
    n_out, n_in, *size = weight.shape
    narrow = n_in <= WIDEST and 8 <= n_out <= WIDEST and n_out & (n_out - 1) == 0
    return _on_gpu(x) and size == [3, 3] and narrow and n_in >= FEWEST


def convolve(
    x: Tensor,
    weight: Tensor,
    norm: Norm | None = None,
    slope: float = 0.0,
    skip: Tensor | None = None,
    plan: Plan | None = None,
) -> Tensor:
    """y (B, Co, H, W) as above."""
    if not fits(x, weight):
        return _plain_convolve(x, weight, norm, slope, skip)
    return _launch(x, weight, norm, slope, skip, plan, turn=False, sums=False)[0]


def convolve_and_sum(
    x: Tensor,
    weight: Tensor,
    norm: Norm | None = None,
    slope: float = 0.0,
    skip: Tensor | None = None,
    plan: Plan | None = None,
) -> tuple[Tensor, Tensor]:
    """y, and partial sums (P, 2, Co) of it and of its square, which norm_kernels.finish_statistics takes."""
    if not fits(x, weight):
        y = _plain_convolve(x, weight, norm, slope, skip)
        return y, norm_kernels.add_and_sum(as_rows(y), None)[1]
    y, partials = _launch(x, weight, norm, slope, skip, plan, turn=False, sums=True)
    return y, cast(Tensor, partials)


def input_gradient(dy: Tensor, weight: Tensor, plan: Plan | None = None) -> Tensor:
    """dx (B, Ci, H, W) as above: the gradient of what the convolution saw, activated if there was a norm."""
    if not fits(dy, weight.transpose(0, 1)):
        turned = weight.flip(2, 3).transpose(0, 1)
        return _plain_convolve(dy, turned, None, 0.0, None)
    return _launch(dy, weight, None, 0.0, None, plan, turn=True, sums=False)[0]


def weight_gradient(
    dy: Tensor, x: Tensor, norm: Norm | None = None, slope: float = 0.0, plan: Plan | None = None
) -> Tensor:
    """dweight (Co, Ci, 3, 3) as above, in float32 (or wider), channels-last."""
    (n, n_in, height, width), n_out = x.shape, dy.shape[1]
    shape = (n_out, n_in, 3, 3)
    wide = torch.promote_types(x.dtype, torch.float32)
    dweight = torch.empty(shape, device=x.device, dtype=wide, memory_format=torch.channels_last)
    if not fits(x, dweight):
        a = _activate(x, norm, slope)
        _, found, _ = aten.convolution_backward(
            dy, a, dweight.to(x.dtype), [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False]
        )
        return cast(Tensor, found.to(dtype=wide, memory_format=torch.channels_last))
    span, places, strip, warps, stages, walkers = plan or weight_gradient_plan(n_in)
    strip = min(strip, height + height % 2)
    n_columns = triton.next_power_of_2((span + 2) * n_in)
    n_places = n * triton.cdiv(width, span)
    n_walks = triton.cdiv(n_places, places) * triton.cdiv(height, strip)
    n_walkers = min(walkers, n_walks)
    partials = torch.empty(n_walkers, 3, n_columns, span * n_out, device=x.device)
    scale, shift = (None, None) if norm is None else (norm.scale, norm.shift)
    on_gpu.weight_gradient[(n_walkers,)](
        _channels_last(dy), _channels_last(x), scale, shift, partials, n_places, n_walks, slope,
        height, width, n_in, n_out, n_columns, span, places, strip, norm is not None,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
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


def _launch(
    x: Tensor, weight: Tensor, norm: Norm | None, slope: float, skip: Tensor | None, plan: Plan | None,
    *, turn: bool, sums: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    x, weight = _channels_last(x), _channels_last(weight)
    skip = None if skip is None else _channels_last(skip)
    n, n_in, height, width = x.shape
    n_out = weight.shape[1 if turn else 0]
    span, places, strip, warps, stages, _ = plan or convolve_plan(n, n_in)
    strip = min(strip, height)
    n_places = n * triton.cdiv(width, span)
    n_programs = triton.cdiv(n_places, places) * triton.cdiv(height, strip)
    y = torch.empty((n, n_out, height, width), device=x.device, dtype=x.dtype, memory_format=torch.channels_last)
    partials = torch.empty(n_programs, 2, n_out, device=x.device) if sums else None
    scale, shift = (None, None) if norm is None else (norm.scale, norm.shift)
    on_gpu.convolve[(n_programs,)](
        x, weight, scale, shift, skip, y, partials, n_places, slope,
        height, width, n_in, n_out, triton.next_power_of_2((span + 2) * n_in), span, places, strip,
        turn, norm is not None, skip is not None, sums, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y, partials


def _plain_convolve(x: Tensor, weight: Tensor, norm: Norm | None, slope: float, skip: Tensor | None) -> Tensor:
    y = aten.convolution(_activate(x, norm, slope), weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return cast(Tensor, y if skip is None else y + skip)


def _activate(x: Tensor, norm: Norm | None, slope: float) -> Tensor:
    return x if norm is None else like(norm_kernels.normalize(as_rows(x), norm, slope), x)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _on_gpu(x: Tensor) -> bool:
    """Only types of two bytes: wider ones have no exact matrix unit, so a library does as well."""
    return triton is not None and x.is_cuda and x.element_size() == 2

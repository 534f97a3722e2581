"""Batch norm followed by leaky ReLU in few passes over the activations, forward and backward.

Activations are rows (M, C): channels-last tensors seen as a matrix, M = B * H * W. One pass reads them for the sums,
one writes the result; a residual connection's sum is formed in the pass that needs its statistics.

    z = scale * x + shift,    scale = weight / sqrt(var + eps),    shift = bias - mean * scale
    y = z if z > 0 else slope * z,    dz = dy if z > 0 else slope * dy
    dx = scale * (dz - sum(dz) / n - x̂ * sum(dz x̂) / n),    x̂ = (x - mean) / sqrt(var + eps)

n rows are learnt from: those of all processes where several share a batch. On a GPU each function is a Triton
kernel; `channels_fit` says where those apply. Elsewhere the same formulas run as plain tensor code, in the precision of
their input, which is what the tests compare.
"""

from typing import NamedTuple

import torch
from torch import Tensor

try:
    import triton

    from dpssl.nets import triton_norms as on_gpu
except ModuleNotFoundError:  # a CPU build of torch comes without Triton
    triton = None

N_PARTIALS = 528  # programs of a pass that sums: four for each of an H200's 132 multiprocessors
SUM_TILE, SUM_WARPS = 2048, 4  # elements such a program holds at a time, and its warps
TILE = 4096  # of a pass that writes
FINISH_COLUMNS = 8  # channels that one program adds up the partial sums of
WIDEST = 1024  # channels


class Norm(NamedTuple):
    """One batch norm as the passes need it, each (C,) in float32 or wider.

    Going backward, mean and inverse_std may be those of fewer rows than scale and shift are of.
    """

    mean: Tensor
    inverse_std: Tensor
    scale: Tensor
    shift: Tensor


def channels_fit(channels: int) -> bool:
    """Whether the kernels exist here and take so many channels: a power of two."""
    return triton is not None and channels & (channels - 1) == 0 and 8 <= channels <= WIDEST


def as_rows(x: Tensor) -> Tensor:
    """(B, C, H, W), channels-last in memory -> (B * H * W, C), without a copy."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def like(rows: Tensor, x: Tensor) -> Tensor:
    """Rows back in the shape of the channels-last tensor they came from."""
    return rows.view(x.shape[0], x.shape[2], x.shape[3], x.shape[1]).permute(0, 3, 1, 2)


def add_and_sum(x: Tensor, other: Tensor | None) -> tuple[Tensor, Tensor]:
    """x + other (or x itself) as rows, and partial sums (P, 2, C) of it and of its square."""
    if not _on_gpu(x):
        total = x if other is None else x + other
        wide = _widen(total)
        return total, torch.stack([wide.sum(0), wide.square().sum(0)]).unsqueeze(0)
    n_rows, channels = x.shape
    partials = torch.empty(N_PARTIALS, 2, channels, device=x.device)
    total = x if other is None else torch.empty_like(x)
    rows = SUM_TILE // channels
    on_gpu.add_and_sum[(N_PARTIALS,)](
        x, other, total, partials, n_rows, channels, rows, other is not None, num_warps=SUM_WARPS
    )
    return total, partials


def finish_statistics(
    partials: Tensor,
    n_rows: int,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    epsilon: float,
) -> Norm:
    """From partial sums to the norm; moves the running statistics (with the unbiased variance, as torch does)."""
    if _on_gpu(partials):
        channels = partials.shape[2]
        norm = Norm(*torch.empty(4, channels, device=partials.device))
        narrow = min(channels, FINISH_COLUMNS)
        on_gpu.finish_statistics[(channels // narrow,)](
            partials, weight, bias, running_mean, running_var, *norm,
            n_rows, momentum, epsilon, channels, narrow, len(partials), triton.next_power_of_2(len(partials)),
        )  # fmt: skip
        return norm
    sums = partials.sum(0)
    mean = sums[0] / n_rows
    var = (sums[1] / n_rows - mean.square()).clamp_min(0)
    inverse_std = (var + epsilon).rsqrt()
    running_mean.lerp_(mean.to(running_mean), momentum)
    running_var.lerp_((var * (n_rows / max(1, n_rows - 1))).to(running_var), momentum)
    scale = weight * inverse_std
    return Norm(mean, inverse_std, scale, bias - mean * scale)


def normalize(x: Tensor, norm: Norm, slope: float) -> Tensor:
    """leaky_relu(scale * x + shift) of rows."""
    if not _on_gpu(x):
        z = _widen(x) * norm.scale + norm.shift
        return torch.where(z > 0, z, slope * z).to(x.dtype)
    n_rows, channels = x.shape
    y = torch.empty_like(x)
    tile = TILE // channels
    on_gpu.normalize[(triton.cdiv(n_rows, tile),)](x, norm.scale, norm.shift, y, n_rows, slope, channels, tile)
    return y


def sum_gradient(dy: Tensor, x: Tensor, norm: Norm, slope: float) -> Tensor:
    """Sums (2, C) of dz and of dz x̂."""
    if not _on_gpu(x):
        wide = _widen(x)
        dz = torch.where(wide * norm.scale + norm.shift > 0, dy, slope * dy)
        return torch.stack([dz.sum(0), (dz * (wide - norm.mean) * norm.inverse_std).sum(0)])
    n_rows, channels = x.shape
    partials = torch.empty(N_PARTIALS, 2, channels, device=x.device)
    rows = SUM_TILE // channels
    on_gpu.sum_gradient[(N_PARTIALS,)](dy, x, *norm, partials, n_rows, slope, channels, rows, num_warps=SUM_WARPS)
    return finish_sums(partials)


def finish_sums(partials: Tensor) -> Tensor:
    """Partial sums (P, 2, C) on the GPU -> (2, C)."""
    n_partials, _, channels = partials.shape
    sums = torch.empty(2, channels, device=partials.device)
    narrow = min(2 * channels, FINISH_COLUMNS)
    powers = triton.next_power_of_2(n_partials)
    on_gpu.finish_sums[(2 * channels // narrow,)](partials, sums, 2 * channels, narrow, n_partials, powers)
    return sums


def input_gradient(
    dy: Tensor, x: Tensor, norm: Norm, sums: Tensor, n_rows: int, slope: float, skip: Tensor | None
) -> Tensor:
    """dx as above, plus `skip` (the gradient that reaches x by another path); `sums` (2, C) of dz and dz x̂."""
    if not _on_gpu(x):
        wide = _widen(x)
        dz = torch.where(wide * norm.scale + norm.shift > 0, dy, slope * dy)
        x_hat = (wide - norm.mean) * norm.inverse_std
        dx = norm.scale * (dz - sums[0] / n_rows - x_hat * sums[1] / n_rows)
        return (dx if skip is None else dx + skip).to(x.dtype)
    channels = x.shape[1]
    dx = torch.empty_like(x)
    tile = TILE // channels
    grid = (triton.cdiv(len(x), tile),)
    on_gpu.input_gradient[grid](
        dy, x, *norm, sums, skip, dx, len(x), 1 / n_rows, slope, channels, tile, skip is not None
    )
    return dx


def _on_gpu(x: Tensor) -> bool:
    return triton is not None and x.is_cuda


def _widen(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))

"""Batch norm followed by leaky ReLU as few passes over the activations, forward and backward.

Activations are rows (M, C): channels-last tensors seen as a matrix, M = B * H * W. One pass reads them for the sums, one
writes the result; the sum of two tensors (a residual connection) is formed in the pass that needs its statistics.

    z = scale * x + shift,  scale = weight / sqrt(var + eps),  shift = bias - mean * scale,  y = z if z > 0 else slope * z
    dz = dy if z > 0 else slope * dy
    dx = scale * (dz - sum(dz) / n - x̂ * sum(dz x̂) / n),  x̂ = (x - mean) / sqrt(var + eps)

The backward pass may cover fewer rows than the n that entered the statistics: rows without a gradient of their own
count as constants. On a GPU each function is a Triton kernel; `rows_fit` says where those apply. Elsewhere the same
formulas run as plain tensor code, in the precision of their input, which is what the tests compare.
"""

from typing import NamedTuple

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:  # a CPU build of torch comes without it
    triton = None

N_PARTIALS = 528  # programs of a pass that sums: four for each of an H200's 132 multiprocessors
TILE = 4096  # elements a program holds at a time
WIDEST = 1024  # channels


class Norm(NamedTuple):
    """One batch norm as the passes need it, each (C,) in float32 or wider."""

    mean: Tensor
    inverse_std: Tensor
    scale: Tensor
    shift: Tensor


def rows_fit(x: Tensor) -> bool:
    """Whether the kernels take this tensor: on a GPU, with a power of two channels."""
    channels = x.shape[1]
    return triton is not None and x.is_cuda and channels & (channels - 1) == 0 and 8 <= channels <= WIDEST


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
    _add_and_sum[(N_PARTIALS,)](x, other, total, partials, n_rows, channels, TILE // channels, other is not None)
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
        narrow = min(channels, 16)
        _finish_statistics[(channels // narrow,)](
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
    _normalize[(triton.cdiv(n_rows, tile),)](x, norm.scale, norm.shift, y, n_rows, slope, channels, tile)
    return y


def sum_gradient(dy: Tensor, x: Tensor, norm: Norm, slope: float) -> Tensor:
    """Partial sums (P, 2, C) of dz and of dz x̂."""
    if not _on_gpu(x):
        wide = _widen(x)
        dz = torch.where(wide * norm.scale + norm.shift > 0, dy, slope * dy)
        return torch.stack([dz.sum(0), (dz * (wide - norm.mean) * norm.inverse_std).sum(0)]).unsqueeze(0)
    n_rows, channels = x.shape
    partials = torch.empty(N_PARTIALS, 2, channels, device=x.device)
    _sum_gradient[(N_PARTIALS,)](dy, x, *norm, partials, n_rows, slope, channels, TILE // channels)
    return partials


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
    _input_gradient[grid](
        dy, x, *norm, sums, skip, dx, len(x), 1 / n_rows, slope, channels, tile, skip is not None
    )
    return dx


def _on_gpu(x: Tensor) -> bool:
    return triton is not None and x.is_cuda


def _widen(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


if triton is not None:

    @triton.jit
    def _add_and_sum(x, other, total, partials, n_rows, C: tl.constexpr, R: tl.constexpr, ADD: tl.constexpr):  # type: ignore[no-untyped-def]
        column = tl.arange(0, C)
        sums = tl.zeros((R, C), tl.float32)
        squares = tl.zeros((R, C), tl.float32)
        for first in range(tl.program_id(0) * R, n_rows, tl.num_programs(0) * R):
            row = first + tl.arange(0, R)
            where = row[:, None].to(tl.int64) * C + column[None, :]
            inside = (row < n_rows)[:, None]
            value = tl.load(x + where, inside, 0.0).to(tl.float32)
            if ADD:
                value += tl.load(other + where, inside, 0.0).to(tl.float32)
                rounded = value.to(total.dtype.element_ty)
                tl.store(total + where, rounded, inside)
                value = rounded.to(tl.float32)
            sums += value
            squares += value * value
        place = partials + tl.program_id(0) * 2 * C + column
        tl.store(place, tl.sum(sums, 0))
        tl.store(place + C, tl.sum(squares, 0))

    @triton.jit
    def _finish_statistics(  # type: ignore[no-untyped-def]
        partials, weight, bias, running_mean, running_var, mean, inverse_std, scale, shift,
        n_rows, momentum, epsilon, C: tl.constexpr, NARROW: tl.constexpr, P: tl.constexpr, P2: tl.constexpr,
    ):  # fmt: skip
        column = tl.program_id(0) * NARROW + tl.arange(0, NARROW)
        part = tl.arange(0, P2)
        place = partials + part[:, None] * 2 * C + column[None, :]
        inside = (part < P)[:, None]
        mu = tl.sum(tl.load(place, inside, 0.0), 0) / n_rows
        var = tl.sum(tl.load(place + C, inside, 0.0), 0) / n_rows - mu * mu
        var = tl.maximum(var, 0.0)
        rs = 1 / tl.sqrt(var + epsilon)
        a = tl.load(weight + column) * rs
        tl.store(mean + column, mu)
        tl.store(inverse_std + column, rs)
        tl.store(scale + column, a)
        tl.store(shift + column, tl.load(bias + column) - mu * a)
        old_mean, old_var = tl.load(running_mean + column), tl.load(running_var + column)
        tl.store(running_mean + column, old_mean + momentum * (mu - old_mean))
        tl.store(running_var + column, old_var + momentum * (var * (n_rows / (n_rows - 1)) - old_var))

    @triton.jit
    def _normalize(x, scale, shift, y, n_rows, slope, C: tl.constexpr, R: tl.constexpr):  # type: ignore[no-untyped-def]
        column = tl.arange(0, C)
        row = tl.program_id(0) * R + tl.arange(0, R)
        where = row[:, None].to(tl.int64) * C + column[None, :]
        inside = (row < n_rows)[:, None]
        z = tl.load(x + where, inside, 0.0).to(tl.float32) * tl.load(scale + column)[None, :]
        z += tl.load(shift + column)[None, :]
        tl.store(y + where, tl.where(z > 0, z, slope * z).to(y.dtype.element_ty), inside)

    @triton.jit
    def _sum_gradient(  # type: ignore[no-untyped-def]
        dy, x, mean, inverse_std, scale, shift, partials, n_rows, slope, C: tl.constexpr, R: tl.constexpr
    ):
        column = tl.arange(0, C)
        mu, rs = tl.load(mean + column)[None, :], tl.load(inverse_std + column)[None, :]
        a, b = tl.load(scale + column)[None, :], tl.load(shift + column)[None, :]
        sums = tl.zeros((R, C), tl.float32)
        products = tl.zeros((R, C), tl.float32)
        for first in range(tl.program_id(0) * R, n_rows, tl.num_programs(0) * R):
            row = first + tl.arange(0, R)
            where = row[:, None].to(tl.int64) * C + column[None, :]
            inside = (row < n_rows)[:, None]
            value = tl.load(x + where, inside, 0.0).to(tl.float32)
            dz = tl.load(dy + where, inside, 0.0).to(tl.float32)
            dz = tl.where(value * a + b > 0, dz, slope * dz)
            sums += dz
            products += dz * (value - mu) * rs
        place = partials + tl.program_id(0) * 2 * C + column
        tl.store(place, tl.sum(sums, 0))
        tl.store(place + C, tl.sum(products, 0))

    @triton.jit
    def _input_gradient(  # type: ignore[no-untyped-def]
        dy, x, mean, inverse_std, scale, shift, sums, skip, dx, n_rows, per_row, slope,
        C: tl.constexpr, R: tl.constexpr, SKIP: tl.constexpr,
    ):  # fmt: skip
        column = tl.arange(0, C)
        mu, rs = tl.load(mean + column)[None, :], tl.load(inverse_std + column)[None, :]
        a, b = tl.load(scale + column)[None, :], tl.load(shift + column)[None, :]
        mean_dz = tl.load(sums + column)[None, :] * per_row
        mean_product = tl.load(sums + C + column)[None, :] * per_row
        row = tl.program_id(0) * R + tl.arange(0, R)
        where = row[:, None].to(tl.int64) * C + column[None, :]
        inside = (row < n_rows)[:, None]
        value = tl.load(x + where, inside, 0.0).to(tl.float32)
        dz = tl.load(dy + where, inside, 0.0).to(tl.float32)
        dz = tl.where(value * a + b > 0, dz, slope * dz)
        out = a * (dz - mean_dz - (value - mu) * rs * mean_product)
        if SKIP:
            out += tl.load(skip + where, inside, 0.0).to(tl.float32)
        tl.store(dx + where, out.to(dx.dtype.element_ty), inside)

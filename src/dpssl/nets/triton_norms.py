"""The Triton kernels of nets.norm_kernels, which says what each computes. Importing this needs Triton.

Rows are R at a time, all C channels of each; sums are in float32 and over partial results, so they do not depend on
which program ends first.
"""

import triton
import triton.language as tl


@triton.jit
def add_and_sum(x, other, total, partials, n_rows, C: tl.constexpr, R: tl.constexpr, ADD: tl.constexpr):
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
def finish_statistics(
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
def finish_sums(partials, sums, COLUMNS: tl.constexpr, NARROW: tl.constexpr, P: tl.constexpr, P2: tl.constexpr):
    column = tl.program_id(0) * NARROW + tl.arange(0, NARROW)
    part = tl.arange(0, P2)
    values = tl.load(partials + part[:, None] * COLUMNS + column[None, :], (part < P)[:, None], 0.0)
    tl.store(sums + column, tl.sum(values, 0))


@triton.jit
def normalize(x, scale, shift, y, n_rows, slope, C: tl.constexpr, R: tl.constexpr):
    column = tl.arange(0, C)
    row = tl.program_id(0) * R + tl.arange(0, R)
    where = row[:, None].to(tl.int64) * C + column[None, :]
    inside = (row < n_rows)[:, None]
    z = tl.load(x + where, inside, 0.0).to(tl.float32) * tl.load(scale + column)[None, :]
    z += tl.load(shift + column)[None, :]
    tl.store(y + where, tl.where(z > 0, z, slope * z).to(y.dtype.element_ty), inside)


@triton.jit
def sum_gradient(dy, x, mean, inverse_std, scale, shift, partials, n_rows, slope, C: tl.constexpr, R: tl.constexpr):
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
def input_gradient(
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

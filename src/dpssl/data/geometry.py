"""Moving pixels: flip and shift, affine warps, zoom, Cutout. Batches of uint8 images, one draw or one matrix per image.

An affine matrix (a, b, c, d, e, f) is Pillow's: the output pixel (x, y) shows the input at (ax + by + c, dx + ey + f).
Here x and y are pixel indices and the result is a position on the input's continuous grid, on which pixel i covers
[i, i + 1). What lies outside the input is 0.
"""

import math

import torch
from torch import Tensor

Matrix = tuple[float, float, float, float, float, float]

GREY = 127  # Cutout's fill
FIXED_POINT = 65536.0  # Pillow samples the nearest pixel in 16.16 fixed point


def affine_matrix(op: str, value: float, height: int, width: int) -> Matrix:
    """The matrix with which Pillow carries out `op`: degrees for rotate, a slope for shear, pixels for translate."""
    a, b, c, d, e, f = 1.0, 0.0, 0.0, 0.0, 1.0, 0.0
    if op == "rotate":  # counterclockwise about the centre
        cos, sin = math.cos(math.radians(value)), math.sin(math.radians(value))
        a, b, d, e = cos, -sin, sin, cos
        c = width / 2 - (a * width / 2 + b * height / 2)
        f = height / 2 - (d * width / 2 + e * height / 2)
    elif op == "shear_x":
        b = value
    elif op == "shear_y":
        d = value
    elif op == "translate_x":
        c = value
    elif op == "translate_y":
        f = value
    return a, b, c + 0.5 * a + 0.5 * b, d, e, f + 0.5 * d + 0.5 * e  # Pillow starts from the pixel's centre


def warp(images: Tensor, matrices: Tensor, interpolation: str) -> Tensor:
    """Resample (B, channels, H, W) images through (B, 6) float64 matrices, `nearest` or `bilinear`, as Pillow does."""
    return warp_bilinear(images, matrices) if interpolation == "bilinear" else warp_nearest(images, matrices)


def warp_nearest(images: Tensor, matrices: Tensor) -> Tensor:
    height, width = images.shape[2:]
    fixed = (matrices * FIXED_POINT + 0.5).floor().int()
    x, y = (_positions(fixed, height, width) >> 16).unbind(1)  # (B, H, W)
    column, row = x.clamp(0, width - 1), y.clamp(0, height - 1)
    inside = (x == column) & (y == row)
    return take_pixels(images, row, column) * inside.unsqueeze(1)


def warp_bilinear(images: Tensor, matrices: Tensor) -> Tensor:
    """In doubles, with the border pixel repeated for half a pixel beyond its centre, cut to whole levels."""
    height, width = images.shape[2:]
    x, y = _positions(matrices, height, width).unbind(1)  # (B, H, W)
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    x, y = x - 0.5, y - 0.5
    left, top = x.floor(), y.floor()
    right_share, bottom_share = (x - left).unsqueeze(1), (y - top).unsqueeze(1)
    left, top = left.int(), top.int()

    def mix_row(row: Tensor) -> Tensor:
        row = row.clamp(0, height - 1)
        start = take_pixels(images, row, left.clamp(0, width - 1)).double()
        return start + (take_pixels(images, row, (left + 1).clamp(0, width - 1)) - start) * right_share

    upper, lower = mix_row(top), mix_row(top + 1)
    return (upper + (lower - upper) * bottom_share).to(torch.uint8) * inside.unsqueeze(1)


def _positions(matrices: Tensor, height: int, width: int) -> Tensor:
    """Where each output pixel looks in the input: (B, 2, H, W), x before y, in the matrices' type."""
    per_column, per_row, start = matrices.view(-1, 2, 3, 1, 1).unbind(2)  # (B, 2, 1, 1)
    x = torch.arange(width, dtype=matrices.dtype, device=matrices.device)
    y = torch.arange(height, dtype=matrices.dtype, device=matrices.device)[:, None]
    return (per_column * x + start) + per_row * y


def flip_and_shift(images: Tensor, mirrored: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Mirror left-right where `mirrored`, then read each image `down` and `right` pixels further, reflected at borders.

    All three are (B,). The same as padding by reflection and cropping a window of the original size.
    """
    height, width = images.shape[2:]
    rows = _reflected(height, down)  # (B, H)
    columns = _reflected(width, right)  # (B, W)
    columns = torch.where(mirrored[:, None], width - 1 - columns, columns)
    return take_pixels(images, rows[:, :, None], columns[:, None, :])


def _reflected(side: int, offset: Tensor) -> Tensor:
    position = torch.arange(side, device=offset.device) + offset[:, None]
    return side - 1 - (side - 1 - position.abs()).abs()


def zoom(images: Tensor, part: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Show `part` of each side of an image at the image's own size, bilinear; more than 1 makes it smaller.

    All three are (B,). `down` and `right` say where the part lies, from 0 (first pixel) to 1 (last pixel). What lies
    outside the image is its reflection.
    """
    height, width = images.shape[2:]
    top, bottom_share = _stretched(height, part, down)  # (B, H)
    left, right_share = _stretched(width, part, right)  # (B, W)
    bottom_share, right_share = bottom_share[:, None, :, None], right_share[:, None, None, :]

    def mix_row(row: Tensor) -> Tensor:
        rows = _mirrored(height, row)[:, :, None]
        start = take_pixels(images, rows, _mirrored(width, left)[:, None, :]).float()
        return start.lerp(take_pixels(images, rows, _mirrored(width, left + 1)[:, None, :]).float(), right_share)

    return mix_row(top).lerp(mix_row(top + 1), bottom_share).round().to(torch.uint8)


def _stretched(side: int, part: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """The pixel below each position that the part's pixels fall on (B, side), and the next one's share."""
    start = place * side * (1 - part)
    centres = torch.arange(side, device=part.device) + 0.5
    position = start[:, None] + part[:, None] * centres - 0.5
    below = position.floor()
    return below.long(), position - below


def _mirrored(side: int, index: Tensor) -> Tensor:
    """Indices outside an image, by any distance, as those of its reflection, with the border pixel twice."""
    index = index.remainder(2 * side)
    return torch.minimum(index, 2 * side - 1 - index)


def cut_out(images: Tensor, size: int, centre_y: Tensor, centre_x: Tensor) -> Tensor:
    """Paint a grey square of `size` pixels per image; centres are (B,) positions in [0, H) and [0, W).

    As in FixMatch-pytorch, a square that would start before the first pixel is moved to it, and one that would end
    behind the last is clipped. FixMatch-pytorch's rectangle includes its end and so is one pixel larger than asked for;
    this one is not.
    """
    rows = _covered(images.shape[2], size, centre_y)  # (B, H)
    columns = _covered(images.shape[3], size, centre_x)  # (B, W)
    return images.masked_fill((rows[:, :, None] & columns[:, None, :]).unsqueeze(1), GREY)


def _covered(side: int, size: int, centre: Tensor) -> Tensor:
    first = (centre - size / 2).clamp(min=0).floor()[:, None]
    position = torch.arange(side, device=centre.device)
    return (position >= first) & (position < first + size)


def take_pixels(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """images[b, :, rows[b], columns[b]] for every image b; rows and columns broadcast to (B, H, W)."""
    channels, width = images.shape[1], images.shape[3]
    index = (rows * width + columns).long().flatten(1).unsqueeze(1).expand(-1, channels, -1)
    return images.flatten(2).gather(2, index).view_as(images)

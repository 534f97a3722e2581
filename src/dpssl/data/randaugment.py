"""RandAugment as FixMatch uses it: fourteen operations, with the ranges of FixMatch-pytorch (github.com/kekmodel).

Computing all fourteen for every image and choosing one would cost fourteen passes. Instead, an operation with its value
is a row of parameters, neutral everywhere but in its own column, and three groups (tone, blend, warp) each run once
over the whole batch. Rows come from a table made once per device and image size; a captured CUDA graph only reads it.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from dpssl.data.geometry import affine_matrix, warp
from dpssl.data.tone import BLEND_NEUTRAL, TONE_NEUTRAL, adjust_blend, adjust_tone

HIGHEST_LEVEL = 10
WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
NEUTRAL = TONE_NEUTRAL | BLEND_NEUTRAL  # the columns of a row; the affine matrix follows


def level_value(op: str, level: int, height: int, width: int) -> float:
    """What `level` (1 … 10) means to an operation. Warps go either way: the draw decides the sign."""
    match op:
        case "brightness" | "color" | "contrast" | "sharpness":
            return level * 0.9 / HIGHEST_LEVEL + 0.05  # factor
        case "posterize":
            return int(level * 4 / HIGHEST_LEVEL) + 4  # bits
        case "solarize":
            return 256 - int(level * 256 / HIGHEST_LEVEL)  # threshold
        case "rotate":
            return int(level * 30 / HIGHEST_LEVEL)  # degrees
        case "shear_x" | "shear_y":
            return level * 0.3 / HIGHEST_LEVEL  # slope
        case "translate_x":
            return int(level * 0.3 / HIGHEST_LEVEL * width)  # pixels
        case "translate_y":
            return int(level * 0.3 / HIGHEST_LEVEL * height)
        case _:
            return 1.0  # autocontrast and equalize are on; identity has no value


def parameter_row(op: str, value: float, height: int, width: int) -> list[float]:
    """All columns at their neutral value but for those of `op`."""
    columns = NEUTRAL | ({op: value} if op in NEUTRAL else {})
    return [*columns.values(), *affine_matrix(op, value, height, width)]


@lru_cache(maxsize=64)
def parameter_table(ops: tuple[str, ...], max_level: int, height: int, width: int, device: torch.device) -> Tensor:
    """Rows by operation (the last is identity), sign (-, +), level - 1: (n + 1, 2, max_level - 1, columns) float64."""
    rows = [
        [
            [
                parameter_row(op, (sign if op in WARPS else 1) * level_value(op, level, height, width), height, width)
                for level in range(1, max_level)
            ]
            for sign in (-1, 1)
        ]
        for op in (*ops, "identity")
    ]
    return torch.tensor(rows, dtype=torch.float64, device=device)


def draw_parameters(
    images: Tensor,
    ops: tuple[str, ...],
    n_ops: int,
    probability: float,
    max_level: int,
    generator: torch.Generator | None,
) -> Tensor:
    """For each of `n_ops` turns and each image: an operation, a level and a sign, drawn apart. (n_ops, B, columns)."""
    batch, _, height, width = images.shape
    device, shape = images.device, (n_ops, batch)
    table = parameter_table(ops, max_level, height, width, device)
    op = torch.randint(len(ops), shape, generator=generator, device=device)
    sign = torch.randint(2, shape, generator=generator, device=device)
    level = torch.randint(1, max_level, shape, generator=generator, device=device)
    skipped = torch.rand(shape, generator=generator, device=device) >= probability
    return table[op.masked_fill(skipped, len(ops)), sign, level - 1]


def apply_parameters(images: Tensor, parameters: Tensor, ops: Sequence[str], interpolation: str) -> Tensor:
    """One turn: each image goes through its row of (B, columns) `parameters`, float64.

    A row departs from neutral in one group at most, so the groups' order does not matter; a group that `ops` does not
    name is left out.
    """
    columns = dict(zip(NEUTRAL, parameters.float().unbind(1), strict=False))  # each (B,)
    tone = {op: columns[op] for op in TONE_NEUTRAL if op in ops}
    blends = {op: columns[op] for op in BLEND_NEUTRAL if op in ops}
    if tone:
        images = adjust_tone(images, tone)
    if blends:
        images = adjust_blend(images, blends)
    if any(op in ops for op in WARPS):
        images = warp(images, parameters[:, len(NEUTRAL) :], interpolation)
    return images


def apply_op(images: Tensor, op: str, values: Sequence[float], interpolation: str = "nearest") -> Tensor:
    """One named operation on (B, channels, H, W) uint8 images with a value per image, in the unit of `level_value`."""
    height, width = images.shape[2:]
    rows = [parameter_row(op, value, height, width) for value in values]
    return apply_parameters(images, torch.tensor(rows, dtype=torch.float64, device=images.device), (op,), interpolation)

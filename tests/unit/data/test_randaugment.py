"""Each of the fourteen operations against the Pillow call it stands for; the draws; the level ranges."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from dpssl.config import ALL_OPS
from dpssl.data.randaugment import (
    NEUTRAL,
    WARPS,
    apply_op,
    apply_parameters,
    draw_parameters,
    level_value,
    parameter_row,
)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

POSTERIZE = list(NEUTRAL).index("posterize")  # its column in a row of parameters
SIZES = ((8, 8), (32, 32), (17, 23))  # height, width
RESAMPLING = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}
ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "color": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}


def to_pillow(image: np.ndarray) -> Image.Image:
    """(channels, H, W) uint8 to mode L or RGB."""
    return Image.fromarray(image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0)))


def from_pillow(image: Image.Image) -> np.ndarray:
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def pillow_op(image: Image.Image, op: str, value: float, interpolation: str = "nearest") -> Image.Image:
    """The Pillow call that FixMatch-pytorch makes for `op`."""
    if op in ENHANCERS:
        return ENHANCERS[op](image).enhance(value)
    if op == "rotate":
        return image.rotate(value, resample=RESAMPLING[interpolation])
    matrices = {
        "shear_x": (1, value, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, value, 1, 0),
        "translate_x": (1, 0, value, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, value),
    }
    if op in matrices:
        return image.transform(image.size, Image.Transform.AFFINE, matrices[op], RESAMPLING[interpolation])
    calls = {
        "autocontrast": ImageOps.autocontrast,
        "equalize": ImageOps.equalize,
        "identity": Image.Image.copy,
        "posterize": lambda picture: ImageOps.posterize(picture, int(value)),
        "solarize": lambda picture: ImageOps.solarize(picture, value),
    }
    return calls[op](image)


def sample_images(channels: int, height: int, width: int) -> np.ndarray:
    """(n, channels, H, W) uint8: noise of full and narrow range, ramps, a checkerboard, two levels, constants."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:height, :width]
    planes = [
        rng.integers(0, 256, (height, width)),
        rng.integers(90, 131, (height, width)),
        rng.binomial(255, 0.02, (height, width)),  # a few dark levels, each on many pixels
        columns * 255 // (width - 1),
        (rows * 7 + columns * 3) % 256,
        (rows + columns) % 2 * 255,
        np.where(rows < height // 2, 40, 200),
        np.full((height, width), 77),
        np.zeros((height, width)),
    ]
    stacked = [np.stack([np.roll(plane, 2 * c, axis=1) for c in range(channels)]) for plane in planes]
    noise = rng.integers(0, 256, (3, channels, height, width))  # channels that differ, so that colour has an effect
    narrow = rng.integers(100, 160, (1, channels, height, width)) - 30 * np.arange(channels)[:, None, None]
    return np.concatenate([np.stack(stacked), noise, narrow]).astype(np.uint8)


def op_values(op: str, height: int, width: int) -> list[float]:
    """The values of levels 1 … 10, and their negatives where the sign is drawn."""
    values = [level_value(op, level, height, width) for level in range(1, 11)]
    return [*values, *(-value for value in values)] if op in WARPS else values


def difference_from_pillow(
    op: str, channels: int, height: int, width: int, device: str, interpolation: str = "nearest"
) -> np.ndarray:
    """|ours - Pillow's| in grey levels for every sample image at every level, with all of them in one batch."""
    images = sample_images(channels, height, width)
    values = op_values(op, height, width)
    batch = np.tile(images, (len(values), 1, 1, 1))
    per_image = np.repeat(values, len(images)).tolist()
    expected = np.stack(
        [
            from_pillow(pillow_op(to_pillow(image), op, value, interpolation))
            for image, value in zip(batch, per_image, strict=True)
        ]
    )
    result = apply_op(torch.from_numpy(batch).to(device), op, per_image, interpolation)
    assert result.dtype == torch.uint8
    return np.abs(result.cpu().numpy().astype(int) - expected.astype(int))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("op", ALL_OPS)
def test_operation_equals_pillow(op, channels, height, width, device):
    assert difference_from_pillow(op, channels, height, width, device).max() == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("op", WARPS)
def test_bilinear_warp_is_within_one_level_of_pillow(op, channels, height, width, device):
    # Both cut a double to a whole level; sums taken in another order may fall on the other side of a whole number.
    difference = difference_from_pillow(op, channels, height, width, device, "bilinear")
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.005


@pytest.mark.parametrize("degrees", [-180, -90, -45, -1, 1, 90, 133])
def test_rotation_by_any_angle_equals_pillow(degrees):
    images = sample_images(3, 17, 23)
    expected = [from_pillow(pillow_op(to_pillow(image), "rotate", degrees)) for image in images]
    assert np.array_equal(apply_op(torch.from_numpy(images), "rotate", [degrees] * len(images)), np.stack(expected))


@pytest.mark.parametrize("op", ["brightness", "color", "contrast", "sharpness"])
@pytest.mark.parametrize("factor", [0.0, 1.0, 1.7])
def test_factors_outside_the_drawn_range_equal_pillow(op, factor):
    images = sample_images(3, 17, 23)
    expected = [from_pillow(pillow_op(to_pillow(image), op, factor)) for image in images]
    assert np.array_equal(apply_op(torch.from_numpy(images), op, [factor] * len(images)), np.stack(expected))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 5), (5, 2), (3, 3)])
@pytest.mark.parametrize("op", ALL_OPS)
def test_tiny_images_equal_pillow(op, height, width):
    images = np.random.default_rng(1).integers(0, 256, (6, 3, height, width), dtype=np.uint8)
    value = level_value(op, 7, height, width)
    expected = [from_pillow(pillow_op(to_pillow(image), op, value)) for image in images]
    assert np.array_equal(apply_op(torch.from_numpy(images), op, [value] * len(images)), np.stack(expected))


@pytest.mark.parametrize("device", DEVICES)
def test_every_image_of_a_mixed_batch_gets_its_own_operation(device):
    """All operations in one batch, the groups all switched on, as in training."""
    height, width = 17, 23
    image = sample_images(3, height, width)[-2]
    cases = [(op, level_value(op, level, height, width)) for op in ALL_OPS for level in (2, 9)]
    rows = torch.tensor([parameter_row(op, value, height, width) for op, value in cases], dtype=torch.float64)
    batch = torch.from_numpy(image).expand(len(cases), -1, -1, -1).to(device)
    result = apply_parameters(batch, rows.to(device), ALL_OPS, "nearest").cpu()
    for (op, value), changed in zip(cases, result, strict=True):
        assert np.array_equal(changed, from_pillow(pillow_op(to_pillow(image), op, value))), op


@pytest.mark.parametrize(
    ("op", "lowest", "highest"),  # at levels 1 and 9, on an image of 20 x 32; worked out by hand
    [
        ("autocontrast", 1, 1),
        ("brightness", 0.14, 0.86),
        ("color", 0.14, 0.86),
        ("contrast", 0.14, 0.86),
        ("sharpness", 0.14, 0.86),
        ("posterize", 4, 7),
        ("solarize", 231, 26),
        ("rotate", 3, 27),
        ("shear_x", 0.03, 0.27),
        ("shear_y", 0.03, 0.27),
        ("translate_x", 0, 8),
        ("translate_y", 0, 5),
    ],
)
def test_level_range_is_fixmatch_pytorchs(op, lowest, highest):
    assert level_value(op, 1, 20, 32) == pytest.approx(lowest)
    assert level_value(op, 9, 20, 32) == pytest.approx(highest)


def test_names_are_the_fourteen_of_randaugment():
    names = (
        "autocontrast brightness color contrast equalize identity posterize rotate sharpness shear_x shear_y solarize"
    )
    assert tuple(f"{names} translate_x translate_y".split()) == ALL_OPS


def drawn(n_images, ops=ALL_OPS, probability=0.5, max_level=10, side=20):
    images = torch.zeros(n_images, 1, side, side, dtype=torch.uint8)
    return draw_parameters(images, ops, 2, probability, max_level, torch.Generator().manual_seed(3))


def test_each_operation_is_drawn_with_its_frequency():
    n_images = 20_000
    rows = drawn(n_images).flatten(0, 1)  # both turns
    # Every level but that of identity, and translation by 0 pixels at level 1, departs from the neutral row.
    share = 0.5 / 14
    tolerance = 5 * (share * (1 - share) / len(rows)) ** 0.5
    neutral = torch.tensor(list(NEUTRAL.values()), dtype=torch.float64)
    changed = (rows[:, : len(NEUTRAL)] != neutral).double().mean(0)
    for op, frequency in zip(NEUTRAL, changed, strict=True):
        assert abs(float(frequency) - share) < tolerance, op
    a, b, c, d, e, f = rows[:, len(NEUTRAL) :].unbind(1)
    is_rotation = a != 1
    warps = {
        "rotate": is_rotation,
        "shear_x": ~is_rotation & (b != 0),
        "shear_y": ~is_rotation & (d != 0),
    }
    for op, hit in warps.items():
        assert abs(float(hit.double().mean()) - share) < tolerance, op
    for axis, hit in {"x": (c != 0.5) & (b == 0), "y": (f != 0.5) & (d == 0)}.items():
        moved = 8 / 9 * share  # of the levels 1 … 9, the first moves an image of 20 pixels by int(0.6) = 0
        assert abs(float(hit.double().mean()) - moved) < tolerance, axis
    assert torch.equal(e == 1, ~is_rotation)


def test_levels_and_signs_are_even_and_the_top_level_excluded():
    slope = drawn(20_000, ops=("shear_x",), probability=1.0).flatten(0, 1)[:, len(NEUTRAL) + 1]
    values, counts = slope.unique(return_counts=True)
    expected = [sign * level_value("shear_x", level, 20, 20) for sign in (-1, 1) for level in range(1, 10)]
    assert values.tolist() == pytest.approx(sorted(expected))
    n, share = len(slope), 1 / 18
    assert (counts / n - share).abs().max() < 5 * (share * (1 - share) / n) ** 0.5


def test_turns_and_columns_are_drawn_independently():
    first, second = drawn(20_000, ops=("shear_x", "posterize"), probability=1.0)
    posterized = (first[:, POSTERIZE] < 8, second[:, POSTERIZE] < 8)
    both = (posterized[0] & posterized[1]).double().mean()
    assert abs(float(both) - 0.25) < 5 * (0.25 * 0.75 / 20_000) ** 0.5


@pytest.mark.parametrize(("probability", "applied"), [(0.0, False), (1.0, True)])
def test_probability_of_an_operation(probability, applied):
    bits = drawn(500, ops=("posterize",), probability=probability)[..., POSTERIZE]
    assert bool((bits < 8).all()) is applied
    assert bool((bits < 8).any()) is applied

"""What Pillow makes of an image, and a comparison with the batched operations on any device (no pytest needed)."""

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from dpssl.data.randaugment import WARPS, apply_op, level_value

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
    """(n, channels, H, W) uint8: noise (full and narrow range), ramps, a checkerboard, two-level and constant images."""
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
    op: str, channels: int, height: int, width: int, interpolation: str = "nearest", device: str = "cpu"
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

"""RandAugment's colour operations on batches of uint8 images, grey level for grey level as Pillow computes them.

Every operation takes one value per image and leaves an image untouched at its neutral value, so that a batch of mixed
operations is one pass of the group. Six of them map each grey level alone: they act on a table of all 256 levels, and
one gather applies the table. The other two, colour and sharpness, blend the image with a duller copy of itself.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

# Per operation, the value at which it does nothing.
TONE_NEUTRAL = {
    "autocontrast": 0.0,  # off or on
    "equalize": 0.0,  # off or on
    "brightness": 1.0,  # factor
    "contrast": 1.0,  # factor
    "posterize": 8.0,  # bits kept
    "solarize": 256.0,  # levels from here on are inverted
}
BLEND_NEUTRAL = {"color": 1.0, "sharpness": 1.0}  # factors


def adjust_tone(images: Tensor, values: Mapping[str, Tensor]) -> Tensor:
    """Apply the operations named in `values`, each with its (B,) values, to (B, channels, H, W) uint8 images."""
    batch, channels = images.shape[:2]
    pixels = images.flatten(2).long()  # (B, channels, H*W), the index into the table
    value = {name: column.view(-1, 1, 1) for name, column in values.items()}  # (B, 1, 1)
    table = torch.arange(256, dtype=torch.uint8, device=images.device).expand(batch, 1, 256)
    if "brightness" in value:
        table = blend(torch.zeros_like(table), table, value["brightness"])
    if "contrast" in value:
        table = blend(mean_grey(images).expand_as(table), table, value["contrast"])
    if "posterize" in value:
        table = posterize(table, value["posterize"])
    if "solarize" in value:
        table = solarize(table, value["solarize"])
    if "autocontrast" in value:
        table = torch.where(value["autocontrast"] > 0, autocontrast_table(pixels), table)
    if "equalize" in value:
        table = torch.where(value["equalize"] > 0, equalize_table(pixels), table)
    return table.expand(batch, channels, 256).gather(2, pixels).view_as(images)


def adjust_blend(images: Tensor, values: Mapping[str, Tensor]) -> Tensor:
    """Blend towards grey (`color`) or towards a smoothed copy (`sharpness`), each with its (B,) factors."""
    if "color" in values and images.shape[1] > 1:  # a grey image is its own grey copy
        images = blend(grey(images), images, values["color"].view(-1, 1, 1, 1))
    if "sharpness" in values:
        images = blend(smooth(images), images, values["sharpness"].view(-1, 1, 1, 1))
    return images


def blend(degenerate: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """PIL.Image.blend: degenerate + factor (image - degenerate), in float32, cut to whole levels."""
    start = degenerate.float()
    return (start + factor * (images.float() - start)).clamp(0, 255).to(torch.uint8)


def posterize(levels: Tensor, bits: Tensor) -> Tensor:
    """PIL.ImageOps.posterize: keep the leading bits of each level."""
    dropped = 8 - bits.int()
    return (levels.int() >> dropped << dropped).to(torch.uint8)


def solarize(levels: Tensor, threshold: Tensor) -> Tensor:
    """PIL.ImageOps.solarize: invert the levels at or above the threshold."""
    return torch.where(levels < threshold, levels, 255 - levels)


def autocontrast_table(pixels: Tensor) -> Tensor:
    """PIL.ImageOps.autocontrast: stretch each channel of (B, channels, H*W) pixels to 0 … 255, as a table of levels."""
    low = pixels.amin(2, keepdim=True)
    span = pixels.amax(2, keepdim=True) - low  # (B, channels, 1)
    levels = torch.arange(256, device=pixels.device)
    # Pillow works in doubles and cuts, so every rounding counts: torch's `255 / x` would multiply by a rounded 1 / x.
    scale = torch.full_like(span, 255, dtype=torch.float64) / span.clamp(min=1)
    stretched = (levels * scale + -low * scale).clamp(0, 255).to(torch.uint8)  # (B, channels, 256)
    return torch.where(span > 0, stretched, levels.to(torch.uint8))


def equalize_table(pixels: Tensor) -> Tensor:
    """PIL.ImageOps.equalize: flatten each channel's histogram of (B, channels, H*W) pixels, as a table of levels."""
    batch, channels, n_pixels = pixels.shape
    counts = torch.zeros(batch, channels, 256, dtype=torch.int32, device=pixels.device)
    counts.scatter_add_(2, pixels, torch.ones_like(pixels, dtype=torch.int32))
    brightest = counts.gather(2, pixels.amax(2, keepdim=True))
    step = (n_pixels - brightest) // 255  # (B, channels, 1)
    darker = counts.cumsum(2, dtype=torch.int32) - counts  # pixels below each level
    flattened = ((step // 2 + darker) // step.clamp(min=1)).clamp(max=255).to(torch.uint8)
    levels = torch.arange(256, dtype=torch.uint8, device=pixels.device)
    return torch.where(step > 0, flattened, levels)  # too few pixels or a single level: Pillow leaves the channel alone


def grey(images: Tensor) -> Tensor:
    """PIL's conversion to mode L: ITU-R 601-2 luma in 16-bit fixed point, (B, 1, H, W) int32."""
    if images.shape[1] == 1:
        return images.int()
    red, green, blue = torch.split(images.int(), 1, dim=1)
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16


def mean_grey(images: Tensor) -> Tensor:
    """Mean of the grey copy, rounded half up: (B, 1, 1)."""
    n_pixels = images.shape[2] * images.shape[3]
    return (2 * grey(images).sum((2, 3)) + n_pixels)[:, :, None] // (2 * n_pixels)


def smooth(images: Tensor) -> Tensor:
    """PIL.ImageFilter.SMOOTH: the 3 x 3 mean in which the centre counts five times; border pixels stay. float32."""
    values = images.float()
    height, width = images.shape[2:]
    if height < 3 or width < 3:
        return values
    columns = values[..., :-2] + values[..., 1:-1] + values[..., 2:]
    box = columns[..., :-2, :] + columns[..., 1:-1, :] + columns[..., 2:, :]
    inner = (slice(None), slice(None), slice(1, -1), slice(1, -1))
    smoothed = values.clone()
    # Sums are whole numbers and 13 is odd: no sum lies halfway, so rounding is exact in single precision.
    smoothed[inner] = ((box + 4 * values[inner]) / 13 + 0.5).floor()
    return smoothed

"""The two views of an image on which FixMatch trains: weak (flip, shift) and strong (RandAugment and Cutout on top).

Images come in and go out as uint8 (B, channels, H, W), 1 or 3 channels, any size, on any device. Every image has its
own draws, all from the generator passed in. Shapes never depend on data and nothing waits for the device, so a view can
be captured in a CUDA graph once a first call has made its constants.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dpssl.data.geometry import cut_out, flip_and_shift
from dpssl.data.randaugment import ALL_OPS, HIGHEST_LEVEL, apply_parameters, draw_parameters
from dpssl.errors import InputError

__all__ = ["ALL_OPS", "Augmentation", "strong_view", "weak_view"]

INTERPOLATIONS = ("nearest", "bilinear")


@dataclass(frozen=True)
class Augmentation:
    """How views are drawn; the defaults are FixMatch-pytorch's."""

    flip: bool = True  # mirror left-right with probability 1/2, in both views
    shift: float = 0.125  # pad each side by this share by reflection, then crop the original size at random
    strong_ops: tuple[str, ...] = ALL_OPS  # the operations RandAugment draws from
    n_ops: int = 2  # operations drawn per image, with replacement
    op_probability: float = 0.5  # with which each drawn operation is applied
    max_level: int = 10  # levels are drawn evenly from 1 … max_level - 1
    cutout: float = 0.5  # side of the grey square as a share of the image's shorter side; 0 = none
    interpolation: str = "nearest"  # of rotation and shear: nearest (Pillow's default there) or bilinear

    def __post_init__(self) -> None:
        _require(0 <= self.shift < 1, "shift", self.shift, "at least 0 and below 1")
        for op in self.strong_ops:
            _require(op in ALL_OPS, "strong_ops", op, f"names among {', '.join(ALL_OPS)}")
        _require(self.n_ops >= 0, "n_ops", self.n_ops, "0 or more")
        _require(bool(self.strong_ops) or self.n_ops == 0, "strong_ops", self.strong_ops, "not empty unless n_ops is 0")
        _require(0 <= self.op_probability <= 1, "op_probability", self.op_probability, "between 0 and 1")
        _require(2 <= self.max_level <= HIGHEST_LEVEL + 1, "max_level", self.max_level, f"2 to {HIGHEST_LEVEL + 1}")
        _require(0 <= self.cutout <= 1, "cutout", self.cutout, "between 0 and 1")
        _require(self.interpolation in INTERPOLATIONS, "interpolation", self.interpolation, " or ".join(INTERPOLATIONS))


def _require(condition: bool, field: str, value: object, allowed: str) -> None:
    if not condition:
        raise InputError(f"augmentation {field} = {value!r}: must be {allowed}")


def weak_view(images: Tensor, settings: Augmentation, generator: torch.Generator | None) -> Tensor:
    """Mirror (if `flip`) and shift each image by its own draw; uint8 (B, channels, H, W) in and out."""
    batch, _, height, width = images.shape
    reach_y, reach_x = int(settings.shift * height), int(settings.shift * width)
    if not (settings.flip or reach_y or reach_x):
        return images

    def draw(low: int, high: int) -> Tensor:
        return torch.randint(low, high + 1, (batch,), generator=generator, device=images.device)

    mirrored = draw(0, int(settings.flip)) > 0
    return flip_and_shift(images, mirrored, down=draw(-reach_y, reach_y), right=draw(-reach_x, reach_x))


def strong_view(images: Tensor, settings: Augmentation, generator: torch.Generator | None) -> Tensor:
    """Flip and shift as in the weak view (a new draw), then `n_ops` turns of RandAugment, then Cutout."""
    images = weak_view(images, settings, generator)
    ops = tuple(settings.strong_ops)
    if settings.n_ops:
        turns = draw_parameters(
            images, ops, settings.n_ops, settings.op_probability, settings.max_level, generator
        )  # (n_ops, B, columns)
        for parameters in turns.unbind(0):
            images = apply_parameters(images, parameters, ops, settings.interpolation)
    batch, _, height, width = images.shape
    size = int(settings.cutout * min(height, width))
    if size:
        centre_y = height * torch.rand(batch, generator=generator, device=images.device)
        centre_x = width * torch.rand(batch, generator=generator, device=images.device)
        images = cut_out(images, size, centre_y, centre_x)
    return images

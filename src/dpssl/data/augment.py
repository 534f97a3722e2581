"""The two views of an image on which FixMatch trains: weak (flip, shift) and strong (RandAugment and Cutout on top).

Images come in and go out as uint8 (B, channels, H, W), 1 or 3 channels, any size, on any device. Every image has its
own draws, all from the generator passed in. Shapes never depend on data and nothing waits for the device, so a view can
be captured in a CUDA graph once a first call has made its constants.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dpssl.data.geometry import cut_out, flip_and_shift
from dpssl.data.randaugment import ALL_OPS, HIGHEST_LEVEL, apply_parameters, draw_parameters
from dpssl.errors import InputError

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
        _require(len(self.strong_ops) > 0, "strong_ops", self.strong_ops, "at least one name; n_ops = 0 turns them off")
        _require(0 <= self.op_probability <= 1, "op_probability", self.op_probability, "between 0 and 1")
        _require(2 <= self.max_level <= HIGHEST_LEVEL + 1, "max_level", self.max_level, f"2 to {HIGHEST_LEVEL + 1}")
        _require(0 <= self.cutout <= 1, "cutout", self.cutout, "between 0 and 1")
        _require(self.interpolation in INTERPOLATIONS, "interpolation", self.interpolation, " or ".join(INTERPOLATIONS))


def _require(condition: bool, field: str, value: object, allowed: str) -> None:
    if not condition:
        raise InputError(f"augmentation {field} = {value!r}: must be {allowed}")


class WeakDraw(NamedTuple):
    """What the weak view draws, each (B,)."""

    mirrored: Tensor
    down: Tensor  # pixels
    right: Tensor


class StrongDraw(NamedTuple):
    """What the strong view draws."""

    weak: WeakDraw
    turns: Tensor  # (n_ops, B, columns), rows of RandAugment's parameters
    centre_y: Tensor  # (B,), of Cutout's square
    centre_x: Tensor


def weak_view(images: Tensor, settings: Augmentation, generator: torch.Generator | None) -> Tensor:
    """Mirror (if `flip`) and shift each image by its own draw; uint8 (B, channels, H, W) in and out."""
    return apply_weak(images, draw_weak(images, settings, generator))


def strong_view(images: Tensor, settings: Augmentation, generator: torch.Generator | None) -> Tensor:
    """Flip and shift as in the weak view (a new draw), then `n_ops` turns of RandAugment, then Cutout."""
    return apply_strong(images, settings, draw_strong(images, settings, generator))


def draw_weak(images: Tensor, settings: Augmentation, generator: torch.Generator | None) -> WeakDraw:
    batch, _, height, width = images.shape
    reach_y, reach_x = int(settings.shift * height), int(settings.shift * width)

    def draw(low: int, high: int) -> Tensor:
        return torch.randint(low, high + 1, (batch,), generator=generator, device=images.device)

    return WeakDraw(
        mirrored=draw(0, int(settings.flip)) > 0, down=draw(-reach_y, reach_y), right=draw(-reach_x, reach_x)
    )


def draw_strong(images: Tensor, settings: Augmentation, generator: torch.Generator | None) -> StrongDraw:
    batch, _, height, width = images.shape
    weak = draw_weak(images, settings, generator)
    turns = draw_parameters(
        images, tuple(settings.strong_ops), settings.n_ops, settings.op_probability, settings.max_level, generator
    )
    centre = torch.rand(2, batch, generator=generator, device=images.device)
    return StrongDraw(weak, turns, centre_y=height * centre[0], centre_x=width * centre[1])


def apply_weak(images: Tensor, draw: WeakDraw) -> Tensor:
    return flip_and_shift(images, draw.mirrored, draw.down, draw.right)


def apply_strong(images: Tensor, settings: Augmentation, draw: StrongDraw) -> Tensor:
    """Plain tensor code without a draw, so torch.compile can take it whole (a generator it cannot)."""
    images = apply_weak(images, draw.weak)
    for parameters in draw.turns.unbind(0):
        images = apply_parameters(images, parameters, settings.strong_ops, settings.interpolation)
    size = int(settings.cutout * min(images.shape[2:]))
    return cut_out(images, size, draw.centre_y, draw.centre_x) if size else images

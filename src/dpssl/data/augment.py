"""The two views of an image on which FixMatch trains: weak (flip, shift) and strong (RandAugment and Cutout on top).

Beyond FixMatch, a strong view may be enlarged or made smaller first (`--zoom`).

Images come in and go out as uint8 (B, channels, H, W), 1 or 3 channels, any size, on any device. Every image has its
own draws, all from the generator passed in. Shapes never depend on data and nothing waits for the device, so a view can
be captured in a CUDA graph once a first call has made its constants.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from dpssl.config import ALL_OPS
from dpssl.config import AugmentConfig as Augmentation
from dpssl.data.geometry import cut_out, flip_and_shift, zoom
from dpssl.data.randaugment import apply_parameters, draw_parameters
from dpssl.data.share import WHOLE, Share

__all__ = [
    "ALL_OPS",
    "Augmentation",
    "Augmenter",
    "apply_strong",
    "apply_weak",
    "draw_strong",
    "draw_weak",
    "strong_view",
    "weak_view",
]


@dataclass(frozen=True)
class Augmenter:
    """Both views with one set of settings and one generator; `compiled` fuses their arithmetic by torch.compile.

    Compiled code is made for one batch size: it pays in a loop whose batches are all alike. Where `images` are one
    process' share of a batch, perhaps put together from parts of `sizes`, the draws are its share of the whole batch's.
    """

    settings: Augmentation
    generator: torch.Generator
    compiled: bool = False
    share: Share = WHOLE

    def weak(self, images: Tensor, sizes: Sequence[int] = ()) -> Tensor:
        apply = _compiled(apply_weak) if self.compiled else apply_weak
        draw = draw_weak(self.share.in_whole_batch(images), self.settings, self.generator)
        return apply(images, self._mine(draw, sizes))

    def strong(self, images: Tensor, turns: Tensor | None = None) -> Tensor:
        """`turns`, as in `StrongDraw` and for the whole batch, take the place of RandAugment's draw."""
        apply = _compiled(apply_strong) if self.compiled else apply_strong
        draw = draw_strong(self.share.in_whole_batch(images), self.settings, self.generator, turns)
        centre_y, centre_x = self.share.of(draw.centre_y), self.share.of(draw.centre_x)
        zoomed = None if draw.zoom is None else ZoomDraw(*map(self.share.of, draw.zoom))
        mine = StrongDraw(self._mine(draw.weak), self.share.of(draw.turns, 1), centre_y, centre_x, zoomed)
        return apply(images, self.settings, mine)

    def _mine(self, draw: "WeakDraw", sizes: Sequence[int] = ()) -> "WeakDraw":
        return WeakDraw(*(self.share.of(column, 0, sizes) for column in draw))


@cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return torch.compile(function, dynamic=False)


class WeakDraw(NamedTuple):
    """What the weak view draws, each (B,)."""

    mirrored: Tensor
    down: Tensor  # pixels
    right: Tensor


class ZoomDraw(NamedTuple):
    """How the strong view is enlarged or made smaller, each (B,)."""

    part: Tensor  # of each side that is shown
    down: Tensor  # place of the part, from 0 (top) to 1 (bottom)
    right: Tensor


class StrongDraw(NamedTuple):
    """What the strong view draws."""

    weak: WeakDraw
    turns: Tensor  # (n_ops, B, columns), rows of RandAugment's parameters
    centre_y: Tensor  # (B,), of Cutout's square
    centre_x: Tensor
    zoom: ZoomDraw | None = None


def weak_view(images: Tensor, settings: Augmentation, generator: torch.Generator | None) -> Tensor:
    """Mirror (if `flip`) and shift each image by its own draw; uint8 (B, channels, H, W) in and out."""
    return apply_weak(images, draw_weak(images, settings, generator))


def strong_view(images: Tensor, settings: Augmentation, generator: torch.Generator | None) -> Tensor:
    """Zoom, flip and shift as in the weak view (a new draw), then `n_ops` turns of RandAugment, then Cutout."""
    return apply_strong(images, settings, draw_strong(images, settings, generator))


def draw_weak(images: Tensor, settings: Augmentation, generator: torch.Generator | None) -> WeakDraw:
    batch, _, height, width = images.shape
    reach_y, reach_x = int(settings.shift * height), int(settings.shift * width)

    def draw(low: int, high: int) -> Tensor:
        return torch.randint(low, high + 1, (batch,), generator=generator, device=images.device)

    return WeakDraw(
        mirrored=draw(0, int(settings.flip)) > 0, down=draw(-reach_y, reach_y), right=draw(-reach_x, reach_x)
    )


def draw_strong(
    images: Tensor, settings: Augmentation, generator: torch.Generator | None, turns: Tensor | None = None
) -> StrongDraw:
    batch, _, height, width = images.shape
    weak = draw_weak(images, settings, generator)
    if turns is None:
        turns = draw_parameters(
            images, tuple(settings.strong_ops), settings.n_ops, settings.op_probability, settings.max_level, generator
        )
    centre = torch.rand(2, batch, generator=generator, device=images.device)
    zoomed = draw_zoom(images, settings, generator) if settings.zoom > 1 else None
    return StrongDraw(weak, turns, centre_y=height * centre[0], centre_x=width * centre[1], zoom=zoomed)


def draw_zoom(images: Tensor, settings: Augmentation, generator: torch.Generator | None) -> ZoomDraw:
    """Parts from 1 / `zoom` (enlarged) to `zoom` (made smaller), evenly in the logarithm, at any place.

    As an operation of RandAugment it is applied by chance; the other images are shown whole.
    """
    chance, size, down, right = torch.rand(4, len(images), generator=generator, device=images.device)
    part = torch.exp((2 * size - 1) * math.log(settings.zoom))
    return ZoomDraw(torch.where(chance < settings.op_probability, part, 1.0), down, right)


def apply_weak(images: Tensor, draw: WeakDraw) -> Tensor:
    return flip_and_shift(images, draw.mirrored, draw.down, draw.right)


def apply_strong(images: Tensor, settings: Augmentation, draw: StrongDraw) -> Tensor:
    """Plain tensor code without a draw, so torch.compile can take it whole (a generator it cannot)."""
    if draw.zoom is not None:
        images = zoom(images, *draw.zoom)
    images = apply_weak(images, draw.weak)
    for parameters in draw.turns.unbind(0):
        images = apply_parameters(images, parameters, settings.strong_ops, settings.interpolation)
    size = int(settings.cutout * min(images.shape[2:]))
    return cut_out(images, size, draw.centre_y, draw.centre_x) if size else images

"""Two views of an image whose likeness a network can learn without labels: SimCLR's (Chen et al. 2020, appendix A).

Each view is a part of the image at the image's own size, mirrored or not, in changed colours or none. What SimCLR blurs
is larger than our images and is not blurred here; its hue is turned in YIQ, where a turn is a matrix, so that all
changes of colour are one matrix an image. Images come in as uint8 (B, channels, H, W) and go out as floats from 0 to
255, every image with its own draw, all from the generator passed in.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

LARGEST_RATIO = 4 / 3  # of the sides of a part, as in SimCLR
JITTERED, GREYED = 0.8, 0.2  # chance that colours change, and that they are lost
TONES, HUES = 0.4, 0.1  # SimCLR's strength .5: factors from .6 to 1.4, turns of up to a tenth
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
TO_YIQ = (LUMA, (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135))


class ViewDraw(NamedTuple):
    """What a view draws, each (B,)."""

    width: Tensor  # of the part, as a share of the image's
    height: Tensor
    right: Tensor  # place of the part, from 0 (as far left as it can be) to 1
    down: Tensor
    mirrored: Tensor
    brightness: Tensor  # factors
    contrast: Tensor
    saturation: Tensor
    hue: Tensor  # turns


def draw_view(
    n_images: int, least_part: float, flip: bool, generator: torch.Generator | None, device: torch.device
) -> ViewDraw:
    """The area of a part is drawn evenly between `least_part` and 1; a side longer than the image's is cut to it."""

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n_images, generator=generator, device=device)

    side = draw(least_part, 1).sqrt()
    stretch = torch.exp(draw(-0.5, 0.5) * math.log(LARGEST_RATIO))  # square root of the ratio of the sides
    changed, greyed = draw(0, 1) < JITTERED, draw(0, 1) < GREYED

    def factor() -> Tensor:
        return torch.where(changed, draw(1 - TONES, 1 + TONES), 1.0)

    return ViewDraw(
        width=(side * stretch).clamp(max=1),
        height=(side / stretch).clamp(max=1),
        right=draw(0, 1),
        down=draw(0, 1),
        mirrored=draw(0, 1) < (0.5 if flip else 0.0),
        brightness=factor(),
        contrast=factor(),
        saturation=torch.where(greyed, 0.0, factor()),
        hue=torch.where(changed, draw(-HUES, HUES), 0.0),
    )


def apply_view(images: Tensor, draw: ViewDraw) -> Tensor:
    return _recolored(_cropped(images.to(draw.width.dtype), draw), draw).clamp(0, 255)


def _cropped(images: Tensor, draw: ViewDraw) -> Tensor:
    """The drawn part of each image at the image's size, bilinear. A grid runs from -1 to 1 over the whole image."""
    scale_x = torch.where(draw.mirrored, -draw.width, draw.width)
    none = torch.zeros_like(scale_x)
    centre_x, centre_y = (1 - draw.width) * (2 * draw.right - 1), (1 - draw.height) * (2 * draw.down - 1)
    matrices = torch.stack([scale_x, none, centre_x, none, draw.height, centre_y], 1).view(-1, 2, 3)
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _recolored(images: Tensor, draw: ViewDraw) -> Tensor:
    """Brightness and contrast (about the image's mean grey), then saturation (about each pixel's grey), then hue."""
    gain = (draw.brightness * draw.contrast)[:, None, None, None]
    if images.shape[1] == 1:
        grey = images.mean((1, 2, 3), keepdim=True)
        return images * gain + grey * (draw.brightness * (1 - draw.contrast))[:, None, None, None]
    luma, to_yiq, from_yiq = _color_matrices(images.device)
    grey = (images.mean((2, 3)) @ luma)[:, None, None, None]
    offset = grey * (draw.brightness * (1 - draw.contrast))[:, None, None, None]
    saturated = draw.saturation[:, None, None] * torch.eye(3, device=images.device) + (
        (1 - draw.saturation)[:, None, None] * luma.expand(3, 3)
    )
    matrices = from_yiq @ _hue_turns(draw.hue) @ to_yiq @ saturated  # (B, 3, 3), leaves grey as it is
    return (matrices @ images.flatten(2)).view_as(images) * gain + offset


def _hue_turns(hue: Tensor) -> Tensor:
    """(B, 3, 3): the plane of I and Q turned, Y left alone, from red by green to blue as the hue grows."""
    cos, sin = torch.cos(2 * math.pi * hue), torch.sin(2 * math.pi * hue)
    none, one = torch.zeros_like(hue), torch.ones_like(hue)
    return torch.stack([one, none, none, none, cos, sin, none, -sin, cos], 1).view(-1, 3, 3)


@cache
def _color_matrices(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Made once a device: a captured graph cannot copy from the host."""
    to_yiq = torch.tensor(TO_YIQ, dtype=torch.float64)
    luma = torch.tensor(LUMA)
    return luma.to(device), to_yiq.to(luma.dtype).to(device), torch.linalg.inv(to_yiq).to(luma.dtype).to(device)

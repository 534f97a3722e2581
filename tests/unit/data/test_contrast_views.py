"""SimCLR's views: parts at the image's size, colours by one matrix, a draw per image."""

import colorsys

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from dpssl.data.contrast_views import ViewDraw, apply_view, draw_view

CPU = torch.device("cpu")


def pictures(n_images: int = 6, n_channels: int = 3, side: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n_images, n_channels, side, side), generator=generator, dtype=torch.uint8)


def drawn(n_images: int = 1, **changes: float) -> ViewDraw:
    """The draw that changes nothing, but for `changes`."""
    same = {
        "width": 1, "height": 1, "right": 0.5, "down": 0.5, "mirrored": 0, "brightness": 1, "contrast": 1,
        "saturation": 1, "hue": 0,
    }  # fmt: skip
    columns = {name: torch.full((n_images,), float(changes.get(name, value))) for name, value in same.items()}
    return ViewDraw(**{**columns, "mirrored": columns["mirrored"] > 0})


def as_pillow(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def from_pillow(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float()


@pytest.mark.parametrize("n_channels", [1, 3])
def test_a_draw_of_nothing_changes_nothing(n_channels: int) -> None:
    images = pictures(n_channels=n_channels)
    torch.testing.assert_close(apply_view(images, drawn(len(images))), images.float(), atol=1e-2, rtol=0)


def test_mirrored() -> None:
    images = pictures()
    view = apply_view(images, drawn(len(images), mirrored=1))
    torch.testing.assert_close(view, images.flip(3).float(), atol=1e-2, rtol=0)


def test_a_part_is_shown_at_the_whole_size() -> None:
    """The lower right quarter: between its pixels' centres the view of a ramp is the ramp, twice as slow."""
    ramp = torch.arange(16, dtype=torch.uint8).expand(1, 1, 16, 16).contiguous()
    view = apply_view(ramp, drawn(width=0.5, height=0.5, right=1, down=1))
    expected = 8 + (torch.arange(16) + 0.5) / 2 - 0.5
    torch.testing.assert_close(view[0, 0, 0, :15], expected[:15])  # the last one looks beyond the border
    torch.testing.assert_close(view[0, 0, 3], view[0, 0, 12])


@pytest.mark.parametrize(
    ("change", "enhance"),
    [("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast), ("saturation", ImageEnhance.Color)],
)
@pytest.mark.parametrize("factor", [0.6, 1.4, 0.0])
def test_tones_as_pillow_has_them(change: str, enhance: type, factor: float) -> None:
    """Up to Pillow's rounding of its grey and of the result."""
    image = pictures(1)
    expected = from_pillow(enhance(as_pillow(image[0])).enhance(factor))
    view = apply_view(image, drawn(**{change: factor}))[0]
    assert (view - expected).abs().max() <= 2


def test_hue_turns_as_in_hsv() -> None:
    """A third of a turn takes red to a colour whose hue is green's, or near: YIQ is not HSV."""
    red = torch.tensor([200, 40, 40], dtype=torch.uint8).view(1, 3, 1, 1)
    for turn in (0.1, -0.1, 1 / 3):
        r, g, b = (apply_view(red, drawn(hue=turn))[0].flatten() / 255).tolist()
        gap = (colorsys.rgb_to_hsv(r, g, b)[0] - turn + 0.5) % 1 - 0.5
        assert abs(gap) < 0.07


def test_grey_stays_grey_whatever_is_drawn() -> None:
    grey = pictures(64, n_channels=1)
    draw = draw_view(64, 0.2, True, torch.Generator().manual_seed(1), CPU)
    of_three = apply_view(grey.expand(-1, 3, -1, -1), draw)
    torch.testing.assert_close(of_three, apply_view(grey, draw).expand_as(of_three), atol=0.05, rtol=0)


def test_draws_are_within_their_bounds_and_as_frequent_as_said() -> None:
    draw = draw_view(20_000, 0.2, True, torch.Generator().manual_seed(0), CPU)
    area = draw.width * draw.height
    assert 0.17 < area.min() < 0.21  # a long part of a small area is cut
    assert area.max() <= 1
    assert draw.width.max() <= 1
    assert draw.height.max() <= 1
    ratio = (draw.width / draw.height)[area < 0.5]
    assert 0.74 < ratio.min() < 0.76
    assert 1.32 < ratio.max() < 1.34
    assert draw.mirrored.float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert (draw.brightness == 1).float().mean().item() == pytest.approx(0.2, abs=0.02)
    assert (draw.saturation == 0).float().mean().item() == pytest.approx(0.2, abs=0.02)
    assert draw.hue.abs().max().item() == pytest.approx(0.1, abs=0.001)
    assert not draw_view(100, 0.2, False, None, CPU).mirrored.any()


@pytest.mark.parametrize(("n_channels", "side"), [(1, 8), (3, 9), (3, 32)])
def test_views_are_pixels_drawn_per_image_and_repeatable(n_channels: int, side: int) -> None:
    images = pictures(1, n_channels, side).expand(8, -1, -1, -1)

    def view() -> torch.Tensor:
        draw = draw_view(len(images), 0.2, True, torch.Generator().manual_seed(3), images.device)
        return apply_view(images, draw)

    assert view().shape == images.shape
    assert 0 <= view().min() <= view().max() <= 255
    assert torch.equal(view(), view())
    assert len({tuple(row) for row in view().flatten(1).tolist()}) == 8

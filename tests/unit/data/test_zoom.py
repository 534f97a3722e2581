"""Strong views that are enlarged or made smaller: against torch's own resampling, by hand, and in what is drawn."""

import math

import pytest
import torch
from torch.nn import functional as F

from dpssl.data.augment import Augmentation, Augmenter, apply_strong, draw_strong, draw_zoom, strong_view
from dpssl.data.geometry import zoom
from dpssl.data.share import WHOLE, Share


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(7))


@pytest.mark.parametrize(("height", "width"), [(8, 8), (32, 32), (5, 9)])
@pytest.mark.parametrize("factor", [1.0, 1.3, 4.0])
def test_zoom_is_torchs_bilinear_sampling_with_reflected_borders(height, width, factor):
    images = noise(40, 3, height, width)
    draw = draw_zoom(images, Augmentation(zoom=factor, op_probability=1.0), generator())
    part, down, right = draw
    none = torch.zeros_like(part)
    across, along = (1 - part) * (2 * right - 1), (1 - part) * (2 * down - 1)
    matrices = torch.stack([part, none, across, none, part, along], 1).view(-1, 2, 3)
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    expected = F.grid_sample(images.float(), grid, "bilinear", "reflection", align_corners=False)
    assert (zoom(images, *draw).float() - expected).abs().max() <= 0.5 + 1e-2  # rounded to whole levels


def test_a_quarter_of_a_ramp_enlarged_by_hand():
    ramp = 10 * torch.arange(4, dtype=torch.uint8).expand(1, 1, 4, 4).contiguous()
    half, first, last = torch.tensor([0.5]), torch.tensor([0.0]), torch.tensor([1.0])
    # The four centres of the left half lie at -.25, .25, .75 and 1.25 pixels, and before pixel 0 comes pixel 0 again.
    assert zoom(ramp, half, first, first)[0, 0, 0].tolist() == [0, 2, 8, 12]
    assert zoom(ramp, half, first, last)[0, 0, 0].tolist() == [18, 22, 28, 30]


def test_a_smaller_image_stands_among_its_reflections():
    image = torch.tensor([[10, 20]], dtype=torch.uint8).expand(1, 1, 2, 2).contiguous()
    # Twice the sides from the first pixel on: centres at .5 and 2.5, and pixels 2 and 3 are the mirrored 1 and 0.
    assert zoom(image, torch.tensor([2.0]), torch.tensor([0.0]), torch.tensor([0.0]))[0, 0, 0].tolist() == [15, 15]


def test_the_whole_image_is_left_as_it_is():
    images = noise(6, 1, 7, 5)
    place = torch.rand(6, generator=generator())
    assert torch.equal(zoom(images, torch.ones(6), place, place), images)


def test_parts_are_drawn_evenly_in_the_logarithm_between_the_two_factors():
    chosen = Augmentation(zoom=1.6, op_probability=1.0)
    part, down, right = draw_zoom(torch.empty(20_000, 1, 1, 1), chosen, generator())
    logarithm = part.log() / math.log(1.6)
    assert -1 <= float(logarithm.min()) < -0.99
    assert 0.99 < float(logarithm.max()) <= 1
    for share in ((logarithm + 1) / 2, down, right):
        deciles = torch.histc(share, 10, 0, 1) / 20_000
        assert (deciles - 0.1).abs().max() < 5 * (0.1 * 0.9 / 20_000) ** 0.5


@pytest.mark.parametrize("chance", [0.0, 0.5])
def test_images_are_zoomed_by_chance(chance):
    part, _, _ = draw_zoom(torch.empty(4_000, 1, 1, 1), Augmentation(zoom=1.6, op_probability=chance), generator())
    assert abs(float((part != 1).double().mean()) - chance) < 5 * (chance * (1 - chance) / 4_000) ** 0.5 + 1e-9


def test_a_factor_of_one_draws_nothing():
    images, plain, zoomed = noise(4, 3, 8, 8), generator(), generator()
    assert draw_strong(images, Augmentation(), plain).zoom is None
    assert draw_strong(images, Augmentation(zoom=1.5), zoomed).zoom is not None
    assert not torch.equal(plain.get_state(), zoomed.get_state())
    other = generator()
    strong_view(images, Augmentation(zoom=1.0), other)
    assert torch.equal(other.get_state(), plain.get_state())


def test_the_strong_view_zooms_first():
    images, chosen = noise(16, 3, 12, 12), Augmentation(zoom=2.0)
    draw = draw_strong(images, chosen, generator(3))
    assert draw.zoom is not None
    expected = apply_strong(zoom(images, *draw.zoom), chosen, draw._replace(zoom=None))
    assert torch.equal(strong_view(images, chosen, generator(3)), expected)
    assert not torch.equal(expected, apply_strong(images, chosen, draw._replace(zoom=None)))


@pytest.mark.parametrize("rank", [0, 3])
def test_processes_zoom_their_share_of_the_batch_as_one_would(rank):
    images, settings = noise(16, 3, 8, 8), Augmentation(zoom=1.5)
    whole = Augmenter(settings, generator(1), share=WHOLE).strong(images)
    mine = Augmenter(settings, generator(1), share=Share(rank, 4)).strong(images[4 * rank : 4 * rank + 4])
    assert torch.equal(mine, whole[4 * rank : 4 * rank + 4])


def test_torch_compile_takes_a_zoomed_view_whole():
    images, settings = noise(6, 3, 12, 12), Augmentation(zoom=1.6)
    draw = draw_strong(images, settings, generator())
    compiled = torch.compile(apply_strong, fullgraph=True, backend="eager")
    assert torch.equal(compiled(images, settings, draw), strong_view(images, settings, generator()))

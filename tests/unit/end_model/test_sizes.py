"""Classes that are told apart by their size in the image are found by the network's answers alone."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dpssl.data.batches import ImageBank
from dpssl.end_model import sizes
from dpssl.end_model.sizes import answers, becomes, images_to_ask, told_apart_by_size

FAR, NEAR, RED = 0, 1, 2


class ByBrightArea(nn.Module):
    """Calls what fills over a third of the image NEAR, the rest FAR, and what has a red corner RED."""

    def forward(self, inputs: Tensor) -> Tensor:
        filled = (inputs[:, 1] > 0).float().mean((1, 2))
        is_red = ((inputs[:, 0, 0, 0] > 0) & (inputs[:, 1, 0, 0] < 0)).float()
        return 50 * torch.stack([0.33 - filled, filled - 0.33, 10 * is_red - 5], 1)


class ByColour(nn.Module):
    """Calls an image by the channel that is brightest in its middle, whatever its size."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 50 * inputs[:, :, 14:18, 14:18].mean((2, 3))


def squares(n_images: int = 600) -> np.ndarray:
    """White squares of 12 to 26 of 32 pixels in the middle of black; a sixth of the images is red instead."""
    images = np.zeros((n_images, 32, 32, 3), np.uint8)
    for at in range(n_images):
        margin = 3 + at % 8
        images[at, margin : 32 - margin, margin : 32 - margin] = 255
        if at % 6 == 5:
            images[at] = (255, 0, 0)
    return images


@pytest.fixture
def bank() -> ImageBank:
    return ImageBank.from_numpy(squares(), torch.device("cpu"))


def test_a_rule_by_size_is_found_with_its_direction(bank: ImageBank) -> None:
    (pair,) = told_apart_by_size(ByBrightArea(), bank)
    assert (pair["far"], pair["near"]) == (FAR, NEAR)
    assert pair["enlarged"] >= sizes.MANY
    assert pair["smaller"] >= sizes.MANY


def test_a_rule_by_colour_is_not(bank: ImageBank) -> None:
    assert told_apart_by_size(ByColour(), bank) == []


def test_the_shares_are_those_of_the_answers() -> None:
    before = np.eye(3, dtype=bool)[np.repeat([0, 1], [80, 40])]
    after = np.eye(3, dtype=bool)[np.concatenate([np.repeat([0, 1, 2], [40, 20, 20]), np.repeat([1], [40])])]
    assert becomes(before, after).tolist() == [[0.5, 0.25, 0.25], [0, 1, 0], [0, 0, 0]]


def test_answers_of_a_few_images_say_nothing() -> None:
    before = np.eye(2, dtype=bool)[np.repeat([0, 1], [100, sizes.FEW_ANSWERS - 1])]
    assert becomes(before, ~before).tolist() == [[0, 1], [0, 0]]


def test_a_whole_image_is_answered_as_it_is(bank: ImageBank) -> None:
    found = answers(ByBrightArea(), bank)[:6]
    assert found.sum(1).tolist() == [1] * 6
    assert found.argmax(1).tolist() == [NEAR, NEAR, NEAR, NEAR, FAR, RED]  # 18 of 32 pixels are .32 of the area
    enlarged = answers(ByBrightArea(), bank, part=0.5)[:6]
    assert enlarged.argmax(1)[:5].tolist() == [NEAR] * 5


def test_the_images_asked_are_spread_evenly() -> None:
    assert images_to_ask(np.arange(100, 5000), 2).tolist()[:3] == [100, 108, 116]
    assert len(images_to_ask(np.arange(5000), 2)) == 2 * sizes.ASKED_PER_CLASS
    assert images_to_ask(np.arange(7), 10).tolist() == list(range(7))


class ByFinestDetail(nn.Module):
    """Calls an image by one pixel against its neighbour: any resampling changes that, whichever way it goes."""

    def forward(self, inputs: Tensor) -> Tensor:
        difference = inputs[:, 0, 4, 4] - inputs[:, 0, 4, 5]
        return 50 * torch.stack([difference, -difference], 1)


def test_classes_that_any_change_mixes_up_are_not_named() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 32, 32, 1), dtype=np.uint8)
    bank = ImageBank.from_numpy(noise, torch.device("cpu"))
    whole = answers(ByFinestDetail(), bank)
    changed = [becomes(whole, answers(ByFinestDetail(), bank, part=part)) for part in (sizes.ENLARGED, sizes.SMALLER)]
    assert min(table[0, 1] for table in changed) > 2 * sizes.MANY  # both mix them up
    assert told_apart_by_size(ByFinestDetail(), bank) == []


def test_very_many_classes_are_asked_less_each() -> None:
    candidates = np.arange(1_000_000)
    assert len(images_to_ask(candidates, 10)) == 10 * sizes.ASKED_PER_CLASS
    assert len(images_to_ask(candidates, 1000)) == sizes.MOST_ASKED
    assert len(images_to_ask(candidates, 5000)) == 5000 * sizes.FEW_ANSWERS

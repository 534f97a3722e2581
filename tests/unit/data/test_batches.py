import numpy as np
import pytest
import torch

from dpssl.data.batches import ImageBank, LabeledImages, draw_any, unlabeled_pool


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)


def test_images_keep_their_pixels(images: np.ndarray) -> None:
    bank = ImageBank.from_numpy(images, torch.device("cpu"))
    assert len(bank) == 20
    assert bank.images.dtype == torch.uint8
    assert bank.images.shape == (20, 3, 6, 5)
    assert np.array_equal(bank.images.numpy().transpose(0, 2, 3, 1), images)


def test_network_input_has_mean_0_and_deviation_1_a_channel(images: np.ndarray) -> None:
    images = (images * np.array([0.1, 0.5, 1.0])).astype(np.uint8)
    bank = ImageBank.from_numpy(images, torch.device("cpu"))
    inputs = bank.network_input(bank.images)
    assert inputs.dtype == torch.float32
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(inputs.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(inputs.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-4, rtol=0)


def test_a_constant_channel_is_finite() -> None:
    bank = ImageBank.from_numpy(np.full((3, 4, 4, 1), 7, np.uint8), torch.device("cpu"))
    assert (bank.network_input(bank.images) == 0).all()


def test_a_test_set_is_normalised_as_the_training_set(images: np.ndarray) -> None:
    bank = ImageBank.from_numpy(images, torch.device("cpu"))
    other = bank.with_images(np.full((2, 6, 5, 3), 255, np.uint8))
    expected = (255 - images.reshape(-1, 3).mean(0)) / images.reshape(-1, 3).std(0)
    assert other.network_input(other.images)[0, :, 0, 0].tolist() == pytest.approx(expected.tolist(), rel=1e-4)


def test_labelled_positions() -> None:
    labeled = LabeledImages.of(torch.tensor([-1, 2, -1, 0, 1]))
    assert labeled.positions.tolist() == [1, 3, 4]
    assert labeled.labels.tolist() == [2, 0, 1]


def test_draws_come_from_the_generator_and_differ_from_step_to_step() -> None:
    generator, again = (torch.Generator().manual_seed(3) for _ in range(2))
    first, second = draw_any(1000, 50, generator), draw_any(1000, 50, generator)
    assert torch.equal(draw_any(1000, 50, again), first)
    assert not torch.equal(first, second)


def test_any_draw_reaches_every_image() -> None:
    draw = draw_any(10, 2000, torch.Generator().manual_seed(0))
    counts = torch.bincount(draw, minlength=10)
    assert len(counts) == 10
    assert counts.min() > 120  # 200 expected, standard deviation 13


def test_unlabelled_images_are_drawn_from_all_or_from_those_without_a_label() -> None:
    given_labels = torch.tensor([-1, 2, -1, 0])
    assert unlabeled_pool(given_labels, with_labeled=True).tolist() == [0, 1, 2, 3]
    assert unlabeled_pool(given_labels, with_labeled=False).tolist() == [0, 2]
    assert unlabeled_pool(torch.tensor([1, 0]), with_labeled=False).tolist() == [0, 1]


def test_how_grey_images_lie_in_memory_makes_no_difference() -> None:
    """Of one channel several strides are right, and torch's convolutions round by those that they meet."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8), dtype=np.uint8)
    with_odd_strides = np.lib.stride_tricks.as_strided(pixels, (5, 8, 8, 1), (64, 8, 1, 0))
    for images in (pixels[..., None], with_odd_strides, np.moveaxis(pixels[None], 0, -1).copy()):
        bank = ImageBank.from_numpy(images, torch.device("cpu"))
        found = bank.network_input(bank.take(torch.arange(5)))
        assert found.stride() == (64, 1, 8, 1)
        assert torch.equal(found, bank.network_input(torch.from_numpy(pixels)[:, None]))

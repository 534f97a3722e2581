"""What a step is fed with: the same images from the device as from a stream, whatever the number of processes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpssl.data import batches
from dpssl.data.batches import ImageBank
from dpssl.data.feed import Feed, Source, draw_evenly
from dpssl.data.share import WHOLE, Share
from dpssl.errors import InputError

CPU = torch.device("cpu")
N_IMAGES = 30


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (N_IMAGES, 6, 5, 3), dtype=np.uint8)


@pytest.fixture
def mapped(images: np.ndarray, tmp_path: Path) -> np.ndarray:
    """The images as a file mapped read-only."""
    np.save(tmp_path / "images.npy", images)
    return np.load(tmp_path / "images.npy", mmap_mode="r")


def make_feed(images: np.ndarray, memory: str, share: Share = WHOLE, seed: int = 7, n_even: int = 4) -> Feed:
    bank = ImageBank.from_numpy(images, CPU, memory)
    labeled = Source(torch.tensor([3, 8, 20]), n_even, "evenly", "--batch-size")
    return Feed(bank, [labeled, Source(torch.arange(N_IMAGES), 8, "any", "--unlabeled-ratio")], seed, share)


def steps(feed: Feed, n_steps: int, first: int = 0) -> Iterator[list[tuple[Tensor, Tensor]]]:
    with feed:
        feed.seek(first)
        for _ in range(n_steps):
            feed.advance()
            yield [(part.positions.clone(), part.images.clone()) for part in feed.parts()]


def same(first: list[tuple[Tensor, Tensor]], second: list[tuple[Tensor, Tensor]]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(torch.equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("memory", ["device", "stream"])
def test_images_are_those_at_their_positions(mapped: np.ndarray, images: np.ndarray, memory: str) -> None:
    for parts in steps(make_feed(mapped, memory), 12):
        for positions, pixels in parts:
            assert np.array_equal(pixels.permute(0, 2, 3, 1).numpy(), images[positions.numpy()])
            assert pixels.is_contiguous()


def test_each_source_is_drawn_as_it_asks(images: np.ndarray) -> None:
    seen = set()
    for (even, _), (anywhere, _) in steps(make_feed(images, "device"), 40):
        counts = torch.bincount(even, minlength=N_IMAGES)[[3, 8, 20]]
        assert counts.sum() == 4
        assert counts.max() - counts.min() <= 1
        assert len(anywhere) == 8
        seen |= set(anywhere.tolist())
    assert seen == set(range(N_IMAGES))


@given(n_images=st.integers(1, 40), n_draws=st.integers(1, 100), seed=st.integers(0, 1000))
def test_even_draws_take_each_image_as_often_as_any_other(n_images: int, n_draws: int, seed: int) -> None:
    drawn = draw_evenly(n_images, n_draws, np.random.default_rng(seed))
    assert len(drawn) == n_draws
    counts = np.bincount(drawn, minlength=n_images)
    assert len(counts) == n_images
    assert counts.max() - counts.min() <= 1


def test_streamed_and_in_memory_are_the_same_bytes(mapped: np.ndarray) -> None:
    for streamed, stored in zip(
        steps(make_feed(mapped, "stream"), 10), steps(make_feed(mapped, "device"), 10), strict=True
    ):
        assert same(streamed, stored)


@pytest.mark.parametrize("memory", ["device", "stream"])
def test_a_step_depends_on_its_number_and_the_seed_alone(images: np.ndarray, memory: str) -> None:
    whole = list(steps(make_feed(images, memory), 9))
    resumed = list(steps(make_feed(images, memory), 4, first=5))
    assert all(same(a, b) for a, b in zip(whole[5:], resumed, strict=True))
    assert not same(whole[0], whole[1])
    assert not same(whole[0], next(steps(make_feed(images, memory, seed=8), 1)))


@pytest.mark.parametrize("memory", ["device", "stream"])
def test_processes_share_the_batch_of_one(images: np.ndarray, memory: str) -> None:
    alone = list(steps(make_feed(images, memory), 3))
    shares = [list(steps(make_feed(images, memory, Share(rank, 2)), 3)) for rank in range(2)]
    for step, parts in enumerate(alone):
        for part, (positions, pixels) in enumerate(parts):
            assert torch.equal(torch.cat([share[step][part][0] for share in shares]), positions)
            assert torch.equal(torch.cat([share[step][part][1] for share in shares]), pixels)


def test_a_batch_that_cannot_be_shared_is_an_error(images: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"--batch-size: a batch of 5 cannot be shared evenly by 2 processes"):
        make_feed(images, "device", Share(0, 2), n_even=5)


def test_a_failure_of_a_gathering_thread_is_not_lost(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    feed = make_feed(images, "stream")
    monkeypatch.setattr(np, "take", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        next(steps(feed, 1))


def test_auto_streams_what_would_take_more_than_half_of_the_free_memory(
    images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    for free, streamed in ((2 * images.nbytes, False), (2 * images.nbytes - 1, True), (None, False)):
        monkeypatch.setattr(batches, "free_bytes", lambda _, free=free: free)
        assert ImageBank.from_numpy(images, CPU).streamed is streamed
    assert not ImageBank.from_numpy(images, CPU, "device").streamed


def test_the_memory_of_this_machine_is_known() -> None:
    free = batches.free_bytes(CPU)
    assert free is None or free > 0


def test_a_streamed_bank_copies_nothing_and_answers_as_one_in_memory(mapped: np.ndarray) -> None:
    streamed, stored = (ImageBank.from_numpy(mapped, CPU, memory) for memory in ("stream", "device"))
    assert np.shares_memory(streamed.images.numpy(), mapped)
    assert torch.equal(streamed.images, stored.images)
    assert torch.equal(streamed.mean, stored.mean)
    positions = torch.tensor([2, 2, 29])
    assert torch.equal(streamed.take(positions), stored.take(positions))
    for start, stop in ((0, None), (5, 21)):
        chunks = zip(streamed.chunks(7, start, stop), stored.chunks(7, start, stop), strict=True)
        assert all(torch.equal(a, b) for a, b in chunks)
    assert torch.equal(torch.cat(list(streamed.chunks(7, 5, 21))), stored.images[5:21])

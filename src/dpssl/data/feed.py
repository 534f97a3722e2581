"""The raw images of each training step, in place on the device before the step runs.

Which images a step sees is drawn on the host and depends on the seed and the number of the step alone. So a checkpoint
needs no more than that number, batches can be made ahead of time by any number of threads, and several processes agree
without a word. The tensors a step reads never change their place: a captured CUDA graph reads them at every replay.

Where the bank is streamed, threads gather pixels into pinned memory a few steps ahead, and a side stream copies them to
the device while the step before still runs.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpssl.data.batches import ImageBank
from dpssl.data.share import WHOLE, Share

N_AHEAD = 4  # batches gathered, or on their way to the device, before they are needed
N_THREADS = 2


@dataclass(frozen=True)
class Source:
    """A part of every batch: `size` images from those at `positions` (n,) of the bank.

    Drawn "evenly" (each image as often as any other, give or take one) or as "any" (independent of each other).
    """

    positions: Tensor
    size: int
    drawn: Literal["evenly", "any"]
    flag: str  # that decides the size, for the message when processes cannot share it


class Part(NamedTuple):
    """This process' share of a step's images, on the device."""

    positions: Tensor  # (B,) in the bank
    images: Tensor  # (B, channels, H, W) uint8


class Feed:
    """Call `advance` before each step; `batch()` and its `parts()` are then the step's images."""

    def __init__(self, bank: ImageBank, sources: Sequence[Source], seed: int, share: Share = WHOLE) -> None:
        self.bank, self.seed, self.share = bank, seed, share
        self._sources = [(source.positions.cpu().numpy(), source) for source in sources]
        self.sizes = [share.count(source.size, source.flag) for source in sources]  # of the parts in this process
        total = sum(self.sizes)
        self._positions = torch.zeros(total, dtype=torch.int64, device=bank.device)
        self._step = 0
        self._stream: _Stream | None = None
        if bank.streamed:
            self._stream = _Stream(bank, self._draw)
            self._pixels = torch.zeros(total, *bank.images.shape[1:], dtype=torch.uint8, device=bank.device)

    def seek(self, step: int) -> None:
        """The next `advance` is for this step, counted from 0."""
        self._step = step
        if self._stream is not None:
            self._stream.seek(step)

    def advance(self) -> None:
        """Put the images of the next step in place."""
        if self._stream is not None:
            self._stream.fill(self._positions, self._pixels)
        else:
            drawn = torch.from_numpy(self._draw(self._step))
            if self._positions.is_cuda:  # pinned, the copy does not wait for the steps before it
                drawn = drawn.pin_memory()
            self._positions.copy_(drawn, non_blocking=True)
        self._step += 1

    def batch(self) -> Part:
        """All parts in one. Belongs to the step: where the bank is on the device, the images are picked there."""
        pixels = self._pixels if self._stream is not None else self.bank.images[self._positions]
        return Part(self._positions, pixels)

    def parts(self) -> list[Part]:
        """The batch, a part a source."""
        positions, images = (torch.split(tensor, self.sizes) for tensor in self.batch())
        return list(map(Part, positions, images))

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _draw(self, step: int) -> NDArray[np.int64]:
        """Positions of this process' share of the batch of `step`; every process draws the whole batch."""
        draws = np.random.default_rng([self.seed, step])
        shares = []
        for positions, source in self._sources:
            n, size = len(positions), source.size
            drawn = draw_evenly(n, size, draws) if source.drawn == "evenly" else draws.integers(n, size=size)
            shares.append(self.share.of(torch.from_numpy(positions[drawn])).numpy())
        return np.concatenate(shares)


def draw_evenly(n_images: int, n_draws: int, draws: np.random.Generator) -> NDArray[np.int64]:
    """`n_draws` positions below `n_images`, each image as often as any other, give or take one."""
    passes, rest = divmod(n_draws, n_images)
    return np.concatenate([np.tile(np.arange(n_images), passes), draws.choice(n_images, rest, replace=False)])


class _Stream:
    """Batches gathered from host memory ahead of time."""

    def __init__(self, bank: ImageBank, draw: Callable[[int], NDArray[np.int64]]) -> None:
        self._draw, self._pinned = draw, bank.device.type == "cuda"
        self._images = bank.images.permute(0, 2, 3, 1).numpy()  # (n, H, W, channels), as it lies in memory
        on_device = (torch.cuda.set_device, (bank.device,)) if self._pinned else (None, ())  # pins for that device
        self._threads = ThreadPoolExecutor(N_THREADS, "images", *on_device)
        self._coming: deque[Future[tuple[Tensor, Tensor]]] = deque()
        self._next = 0
        self._side = torch.cuda.Stream(bank.device) if self._pinned else None
        self._copied: deque[torch.cuda.Event] = deque()

    def seek(self, step: int) -> None:
        while self._coming:
            self._coming.popleft().cancel()
        self._next = step

    def fill(self, positions: Tensor, pixels: Tensor) -> None:
        """Copy the next batch into the tensors that the step reads, and order the one after the last ordered."""
        while len(self._coming) <= N_AHEAD:
            self._coming.append(self._threads.submit(self._gather, self._next))
            self._next += 1
        found, images = self._coming.popleft().result()
        if self._side is None:
            positions.copy_(found)
            pixels.copy_(images.permute(0, 3, 1, 2))
            return
        if len(self._copied) >= N_AHEAD:  # the host runs ahead of the device, but not without bound
            self._copied.popleft().synchronize()
        step_stream = torch.cuda.current_stream()
        with torch.cuda.stream(self._side):
            staged = [tensor.to(pixels.device, non_blocking=True) for tensor in (found, images)]
        step_stream.wait_stream(self._side)
        positions.copy_(staged[0])
        pixels.copy_(staged[1].permute(0, 3, 1, 2))
        for tensor in staged:
            tensor.record_stream(step_stream)  # its memory is free for the side stream once these copies are done
        self._copied.append(step_stream.record_event())

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _gather(self, step: int) -> tuple[Tensor, Tensor]:
        positions = self._draw(step)
        images = torch.empty(len(positions), *self._images.shape[1:], dtype=torch.uint8, pin_memory=self._pinned)
        np.take(self._images, positions, axis=0, out=images.numpy(), mode="clip")  # other modes copy through a buffer
        found = torch.from_numpy(positions)
        return (found.pin_memory() if self._pinned else found), images

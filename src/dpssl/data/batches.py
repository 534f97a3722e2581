"""The images of a run as training and voting read them, and how pixels become network input.

A set that fits lies on the device as one uint8 tensor. A larger one stays in host memory, or in the file that is mapped
into it, and is copied to the device a batch at a time (see dpssl.data.feed). The choice changes nothing but the speed.
"""

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpssl.constants import LEFT_OUT, UNLABELED
from dpssl.errors import TrainingError

SHARE_FOR_IMAGES = 0.5  # of the free memory: the rest is for activations
MOMENTS_CHUNK = 4096  # images counted at a time, so that a set larger than the memory passes through it


@dataclass(frozen=True)
class ImageBank:
    """Images with the constants that normalise them, which are on the device that computes."""

    images: Tensor  # (n, channels, H, W) uint8, on the device, or where they are streamed on the host
    mean: Tensor  # (channels, 1, 1)
    std: Tensor  # (channels, 1, 1)
    streamed: bool = False

    @classmethod
    def from_numpy(cls, images: np.ndarray, device: torch.device, memory: str = "auto") -> "ImageBank":
        """`images` (n, H, W, channels) uint8, perhaps memory-mapped; mean and deviation a channel are taken from them.

        `memory`: on the "device", a "stream" from the host, or "auto", which streams what would take more than half of
        the memory that is free there.
        """
        mean, std = (
            torch.tensor(moment, dtype=torch.float32, device=device).view(-1, 1, 1)
            for moment in channel_moments(images)
        )
        return cls(torch.empty(0, dtype=torch.uint8), mean, std).with_images(images, memory)

    def with_images(self, images: np.ndarray, memory: str = "auto") -> "ImageBank":
        """Other images (a test set) under the same normalisation."""
        streamed = memory == "stream" or (memory == "auto" and not fits_on(self.device, images.nbytes))
        return ImageBank(_stored(images, self.device, streamed), self.mean, self.std, streamed)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def device(self) -> torch.device:
        """Where training computes; streamed images are elsewhere."""
        return self.mean.device

    def take(self, positions: Tensor) -> Tensor:
        """Images (B, channels, H, W) at `positions` (B,), on the device."""
        return self.images[positions.to(self.images.device)].to(self.device).contiguous()

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Tensor]:
        """Images from `start` to `stop` in order, `size` at a time, on the device."""
        stop = len(self) if stop is None else stop
        for first in range(start, stop, size):
            yield self.images[first : min(first + size, stop)].to(self.device).contiguous()

    def network_input(self, images: Tensor) -> Tensor:
        """uint8 (B, channels, H, W) -> normalised float32, channels-last.

        Of one channel both layouts are the same memory, and torch rounds by the strides that it finds: they are set.
        """
        scaled = ((images.float() - self.mean) / self.std).contiguous(memory_format=torch.channels_last)
        n_channels, height, width = scaled.shape[1:]
        return scaled if n_channels > 1 else scaled.as_strided(scaled.shape, (height * width, 1, width, 1))


def _stored(images: np.ndarray, device: torch.device, streamed: bool) -> Tensor:
    if not streamed:
        in_order = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
        try:
            return in_order.to(device)
        except torch.OutOfMemoryError as problem:
            raise TrainingError(
                f"{images.nbytes / 2**20:,.0f} MiB of images do not fit into the memory of the device: "
                "stream them with --image-memory stream"
            ) from problem
    with warnings.catch_warnings():  # a file mapped read-only cannot be written through the tensor: nobody tries
        warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
        return torch.from_numpy(np.asarray(images)).permute(0, 3, 1, 2)


def fits_on(device: torch.device, n_bytes: int) -> bool:
    """Whether images of `n_bytes` leave half of the memory that is free on the device to training."""
    free = free_bytes(device)
    return free is None or n_bytes <= SHARE_FOR_IMAGES * free


def free_bytes(device: torch.device) -> int | None:
    """Memory free on the device; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            available = next(line for line in lines if line.startswith("MemAvailable:"))
        return 1024 * int(available.split()[1])
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None


@dataclass(frozen=True)
class LabeledImages:
    """Positions of the labelled images in the bank, and their labels."""

    positions: Tensor  # (n,)
    labels: Tensor  # (n,)

    @classmethod
    def of(cls, given_labels: Tensor) -> "LabeledImages":
        positions = torch.nonzero(given_labels >= 0).flatten()
        return cls(positions, given_labels[positions])


def unlabeled_pool(given_labels: Tensor, with_labeled: bool) -> Tensor:
    """Positions that unlabelled batches are drawn from: all, as in FixMatch, or those without a given label.

    All of them also where each has a label, as a fully supervised baseline sees them. Never those left out.
    """
    unlabeled = given_labels == UNLABELED
    wanted = given_labels != LEFT_OUT if with_labeled or not unlabeled.any() else unlabeled
    return torch.nonzero(wanted).flatten()


def channel_moments(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (at least 1) of each channel of (n, H, W, channels) uint8, from its histogram.

    Exact, and without the float copy of all images that numpy's own reductions make.
    """
    n_channels, levels = images.shape[-1], np.arange(256)
    counts = np.zeros((n_channels, 256), dtype=np.int64)
    for start in range(0, len(images), MOMENTS_CHUNK):
        chunk = images[start : start + MOMENTS_CHUNK]
        counts += np.stack([np.bincount(chunk[..., c].ravel(), minlength=256) for c in range(n_channels)])
    share = counts / counts.sum(1, keepdims=True)  # (channels, 256)
    mean = share @ levels
    variance = (share * (levels - mean[:, None]) ** 2).sum(1)
    return mean, np.maximum(np.sqrt(variance), 1.0)


def draw_any(n_images: int, n_draws: int, generator: torch.Generator) -> Tensor:
    """`n_draws` positions below `n_images`, independent of each other."""
    return torch.randint(n_images, (n_draws,), generator=generator, device=generator.device)

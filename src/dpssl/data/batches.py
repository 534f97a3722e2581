"""Which images a step sees, and how pixels become network input.

The whole set lies on the device as uint8; a step draws positions there. Draws are independent from step to step, so the
state of the random generator is all that resuming needs.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class ImageBank:
    """Images on the device with the constants that normalise them."""

    images: Tensor  # (n, channels, H, W) uint8
    mean: Tensor  # (channels, 1, 1)
    std: Tensor  # (channels, 1, 1)

    @classmethod
    def from_numpy(cls, images: np.ndarray, device: torch.device) -> "ImageBank":
        """`images` (n, H, W, channels) uint8; mean and standard deviation per channel are taken from them."""
        mean, std = channel_moments(images)
        return cls(
            torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(device),
            torch.tensor(mean, dtype=torch.float32, device=device).view(-1, 1, 1),
            torch.tensor(std, dtype=torch.float32, device=device).view(-1, 1, 1),
        )

    def with_images(self, images: np.ndarray) -> "ImageBank":
        """Other images (a test set) under the same normalisation."""
        stored = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(self.images.device)
        return ImageBank(stored, self.mean, self.std)

    def __len__(self) -> int:
        return len(self.images)

    def network_input(self, images: Tensor) -> Tensor:
        """uint8 (B, channels, H, W) -> normalised float32, channels-last."""
        scaled = (images.float() - self.mean) / self.std
        return scaled.contiguous(memory_format=torch.channels_last)


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

    All of them also where each has a label, as a fully supervised baseline sees them.
    """
    unlabeled = given_labels < 0
    wanted = torch.ones_like(unlabeled) if with_labeled or not unlabeled.any() else unlabeled
    return torch.nonzero(wanted).flatten()


def channel_moments(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (at least 1) of each channel of (n, H, W, channels) uint8, from its histogram.

    Exact, and without the float copy of all images that numpy's own reductions make.
    """
    levels = np.arange(256)
    counts = np.stack([np.bincount(images[..., c].ravel(), minlength=256) for c in range(images.shape[-1])])
    share = counts / counts.sum(1, keepdims=True)  # (channels, 256)
    mean = share @ levels
    variance = (share * (levels - mean[:, None]) ** 2).sum(1)
    return mean, np.maximum(np.sqrt(variance), 1.0)


def draw_evenly(n_images: int, n_draws: int, generator: torch.Generator) -> Tensor:
    """`n_draws` positions below `n_images`, each image as often as any other, give or take one."""
    passes, rest = divmod(n_draws, n_images)
    every = torch.arange(n_images, device=generator.device)
    shuffled = torch.rand(n_images, generator=generator, device=generator.device).argsort()
    return torch.cat([every.repeat(passes), shuffled[:rest]])


def draw_any(n_images: int, n_draws: int, generator: torch.Generator) -> Tensor:
    """`n_draws` positions below `n_images`, independent of each other."""
    return torch.randint(n_images, (n_draws,), generator=generator, device=generator.device)

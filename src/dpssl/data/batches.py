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
        pixels = images.reshape(-1, images.shape[-1])
        mean = pixels.mean(0, dtype=np.float64)
        std = np.maximum(pixels.std(0, dtype=np.float64), 1.0)
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


def draw_evenly(n_images: int, n_draws: int, generator: torch.Generator) -> Tensor:
    """`n_draws` positions below `n_images`, each image as often as any other, give or take one."""
    passes, rest = divmod(n_draws, n_images)
    every = torch.arange(n_images, device=generator.device)
    shuffled = torch.rand(n_images, generator=generator, device=generator.device).argsort()
    return torch.cat([every.repeat(passes), shuffled[:rest]])


def draw_any(n_images: int, n_draws: int, generator: torch.Generator) -> Tensor:
    """`n_draws` positions below `n_images`, independent of each other."""
    return torch.randint(n_images, (n_draws,), generator=generator, device=generator.device)

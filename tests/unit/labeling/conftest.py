from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from dpssl.config import Config, with_values
from dpssl.data.batches import ImageBank


@pytest.fixture(scope="session")
def digits() -> tuple[ImageBank, Tensor]:
    """Zeros, ones and twos, and given labels: four of each class, else -1."""
    images, truth = load_digits(n_class=3, return_X_y=True)
    given = torch.full((90,), -1)
    for label in range(3):
        given[np.flatnonzero(truth[:90] == label)[:4]] = label
    stored = (images[:90].reshape(-1, 8, 8, 1) * 255 / 16).astype(np.uint8)
    return ImageBank.from_numpy(stored, torch.device("cpu")), given


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., Config]:
    """`tiny_config(mcl=False)`: a WRN-10-1 with five LFs and a few steps, with fields replaced."""

    def make(**values: object) -> Config:
        small = {
            "depth": 10, "width": 1, "strides": (1, 2, 1), "bn_momentum": 0.1, "flip": False, "n_lfs": 5,
            "specialist_ratio": 0.4, "mcl_min_steps": 3, "mcl_max_steps": 30, "mcl_tolerance": 1.0, "steps": 6,
            "window": 3, "mcl_window": 3, "batch_size": 6, "unlabeled_ratio": 2, "ema_decay": 0.9,
            "confidence_threshold": 0.5,
        }  # fmt: skip
        return with_values(Config(), {**small, **values})

    return make

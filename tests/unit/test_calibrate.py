import numpy as np
import torch

from dpssl.calibrate import seconds_per_image
from dpssl.config import Config, with_values


def test_real_steps_are_timed() -> None:
    images = np.random.default_rng(0).integers(0, 255, (30, 12, 12, 1), dtype=np.uint8)
    labels = np.where(np.arange(30) < 6, np.arange(30) % 3, -1)
    small = {"depth": 10, "width": 1, "batch_size": 2, "unlabeled_ratio": 1, "n_lfs": 3, "specialist_ratio": 0.4}
    measured = seconds_per_image(with_values(Config(), small), images, labels, 8, torch.device("cpu"))
    assert 0 < measured < 10

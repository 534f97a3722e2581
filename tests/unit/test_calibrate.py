import numpy as np
import pytest
import torch

from dpssl.calibrate import seconds_per_image
from dpssl.config import Config, with_values


@pytest.mark.parametrize(
    "more", [{}, {"pseudo_labels": "consensus", "warm_steps": 20, "warm_method": "byol", "propagation_steps": 20}]
)
def test_real_steps_are_timed(more: dict[str, object]) -> None:
    images = np.random.default_rng(0).integers(0, 255, (30, 12, 12, 1), dtype=np.uint8)
    labels = np.where(np.arange(30) < 6, np.arange(30) % 3, -1)
    small = {"depth": 10, "width": 1, "batch_size": 2, "unlabeled_ratio": 1, "n_lfs": 3, "specialist_ratio": 0.4}
    measured = seconds_per_image(with_values(Config(), {**small, **more}), images, labels, 8, torch.device("cpu"))
    assert 0 < measured < 10

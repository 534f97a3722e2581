from collections.abc import Callable

import pytest

from dpssl.config import Config, with_values


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

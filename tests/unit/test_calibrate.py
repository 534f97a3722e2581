import numpy as np
import pytest
import torch

from dpssl.calibrate import seconds_per_image
from dpssl.config import Config, with_values

SMALL = {"depth": 10, "width": 1, "batch_size": 2, "unlabeled_ratio": 1, "n_lfs": 3, "specialist_ratio": 0.4}


def measured(**more: object) -> float:
    images = np.random.default_rng(0).integers(0, 255, (30, 12, 12, 1), dtype=np.uint8)
    labels = np.where(np.arange(30) < 6, np.arange(30) % 3, -1)
    return seconds_per_image(with_values(Config(), {**SMALL, **more}), images, labels, 8, torch.device("cpu"))


def test_real_steps_are_timed() -> None:
    assert 0 < measured() < 10


def test_nothing_is_propagated_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no start yet whose features could be asked."""

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("dpssl.labeling.train.propagated_labels", fail)
    assert measured(pseudo_labels="consensus", propagation_steps=20) > 0


def test_a_sample_without_labels_of_some_class_is_timed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpssl.calibrate.N_SAMPLED", 2)  # every third of the six labels, all of the first class
    config = {"class_prior": "labels", "alignment": True}
    assert measured(**config) > 0

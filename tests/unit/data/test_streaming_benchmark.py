"""The benchmark of streaming runs, and its rows train the same network."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch


def test_rows_of_the_benchmark(benchmark_script: Callable[[str], ModuleType]) -> None:
    script = benchmark_script("streaming")
    small = {"n_lfs": 5, "batch_size": 4, "unlabeled_ratio": 1}
    rows = script.measure(torch.device("cpu"), n_steps=8, n_images=60, side=8, more=small)
    assert list(rows) == ["on the device", "streamed from memory", "streamed from a mapped file"]
    assert rows["on the device"]["share_of_device_speed"] == 1
    for row in rows.values():
        assert row["first_loss"] == pytest.approx(rows["on the device"]["first_loss"], rel=1e-5)
        assert row["ms_per_step"] > 0

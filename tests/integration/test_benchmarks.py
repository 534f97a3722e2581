"""Benchmarks that measure what a network or a label model knows: their scores by hand, and one small run of each."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dpssl.config import Config, with_values
from dpssl.nets.backbones import build_backbone

Script = Callable[[str], ModuleType]


def test_neighbours_and_centres_by_hand(benchmark_script: Script) -> None:
    """Two classes on two axes, 21 images each, and one of the second class that lies with the first."""
    script = benchmark_script("warm_start")
    found = torch.eye(2).repeat_interleave(21, 0)
    truth = torch.tensor([0] * 21 + [1] * 21)
    truth[0] = 1
    assert script.neighbor_accuracy(found, truth) == pytest.approx(41 / 42)
    assert script.center_accuracy(found, truth, np.array([1, 22])) == pytest.approx(41 / 42)


def test_a_warm_start_leaves_weights_that_a_backbone_takes(benchmark_script: Script, tmp_path: Path) -> None:
    shape = {"depth": 10, "width": 1, "strides": [1, 2, 1]}
    small = {**shape, "warm_steps": 2, "window": 1, "warm_batch_size": 8, "compile": "false", "flip": "false"}
    flags = [f"{name}={json.dumps(value) if not isinstance(value, str) else value}" for name, value in small.items()]
    weights, out = tmp_path / "warm.safetensors", tmp_path / "out.json"
    told = ["--data", "digits", "--device", "cpu", "--weights", str(weights), "--out", str(out), "--set", *flags]
    benchmark_script("warm_start").main(told)
    curve = json.loads(out.read_text())["curve"]
    assert [line["step"] for line in curve] == [1, 2]
    assert 0 < curve[-1]["neighbors"] <= 1
    build_backbone(with_values(Config(), shape).backbone, 1).load_state_dict(load_file(weights))


def test_the_order_of_labels_by_hand(benchmark_script: Script) -> None:
    script = benchmark_script("shared_doubt")
    surest, right = np.array([0.9, 0.8, 0.8, 0.3]), np.array([True, True, False, False])
    assert script.pairs_in_order(surest, right) == pytest.approx((2 + 1.5) / 4)
    assert np.isnan(script.pairs_in_order(surest, np.ones(4, dtype=bool)))


def test_the_doubt_of_a_run(benchmark_script: Script, tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    benchmark_script("shared_doubt").main([str(tiny_run), "--out", str(out)])
    (row,) = json.loads(out.read_text())["rows"]
    assert row["with"]["accuracy"] == row["without"]["accuracy"]
    assert row["n_independent"] >= 1


def test_pictures_of_a_time_budget(benchmark_script: Script) -> None:
    script = benchmark_script("time_budget")
    pictures = script.choose("digits@12", seed=3)
    assert pictures.images.shape[1:] == (12, 12, 1)
    assert np.bincount(pictures.truth[pictures.labeled]).tolist() == [script.PER_CLASS] * 10
    others = script.run_sklearn(pictures)
    assert all(0.5 < score < 1 for score in others.values())

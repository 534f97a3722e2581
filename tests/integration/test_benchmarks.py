"""Benchmarks that measure what a network or a label model knows: their scores by hand, and one small run of each."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits

from dpssl.config import Config, load_preset, with_values
from dpssl.nets.backbones import build_backbone, start_backbone

Script = Callable[[str], ModuleType]


def test_neighbours_and_centres_by_hand(benchmark_script: Script) -> None:
    """Two classes on two axes, 21 images each, and one of the second class that lies with the first."""
    script = benchmark_script("warm_start")
    found = torch.eye(2).repeat_interleave(21, 0)
    truth = torch.tensor([0] * 21 + [1] * 21)
    truth[0] = 1
    assert script.neighbor_accuracy(found, truth) == pytest.approx(41 / 42)
    assert script.center_accuracy(found, truth, np.array([1, 22])) == pytest.approx(41 / 42)


@pytest.mark.parametrize("method", ["simclr", "byol"])
def test_a_warm_start_leaves_weights_that_a_backbone_takes(
    benchmark_script: Script, tmp_path: Path, method: str
) -> None:
    shape = {"depth": 10, "width": 1, "strides": [1, 2, 1]}
    small = {
        **shape,
        "warm_method": f'"{method}"',
        "warm_steps": 2,
        "window": 1,
        "warm_batch_size": 8,
        "compile": "false",
        "flip": "false",
    }
    flags = [f"{name}={json.dumps(value) if not isinstance(value, str) else value}" for name, value in small.items()]
    weights, out = tmp_path / "warm.safetensors", tmp_path / "out.json"
    told = ["--data", "digits", "--device", "cpu", "--weights", str(weights), "--out", str(out), "--set", *flags]
    benchmark_script("warm_start").main(told)
    curve = json.loads(out.read_text())["curve"]
    assert [line["step"] for line in curve] == [1, 2]
    assert 0 < curve[-1]["neighbors"] <= 1
    build_backbone(with_values(Config(), shape).backbone, 1).load_state_dict(load_file(weights))


def test_how_many_of_the_surest_labels_are_right_by_hand(benchmark_script: Script) -> None:
    """20 images of two classes, surest first: three in four of each are right, the wrong ones last."""
    confidence = np.linspace(0.99, 0.6, 20)
    labels, truth = np.arange(20) % 2, np.arange(20) % 2
    truth[14], truth[15:] = 1, np.where(np.arange(15, 20) % 2, 0, 1)
    probabilities = np.where(labels[:, None] == np.arange(2), confidence[:, None], 1 - confidence[:, None])
    found = benchmark_script("propagated_labels").scores(probabilities, truth)
    assert found["right"] == 14 / 20
    assert found["right_of_surest"][:14] == [1.0] * 14
    assert found["right_of_surest"][15] == pytest.approx(14 / 16)
    assert found["right_of_500_per_class"] == 14 / 20


def test_labels_that_spread_beside_heads(benchmark_script: Script, tmp_path: Path) -> None:
    config, out, weights = load_preset("digits"), tmp_path / "out.json", tmp_path / "start.safetensors"
    backbone = build_backbone(config.backbone, 1)
    start_backbone(backbone, config.backbone, 1, torch.Generator().manual_seed(0))
    save_file(backbone.state_dict(), weights)
    told = ["--preset", "digits", "--seeds", "1", "2", "--device", "cpu", "--out", str(out)]
    script, start = benchmark_script("propagated_labels"), ["--starts", f"drawn={weights}"]
    with pytest.raises(SystemExit):
        script.main([*told, *start, "--data", "digits"])
    digits, data = load_digits(), tmp_path / "digits.npz"
    images = (digits.images[..., None] * 15).astype("uint8")
    np.savez(data, train_x=images[:900], train_y=digits.target[:900], test_x=images[900:], test_y=digits.target[900:])
    script.main([*told, *start, "--data", str(data)])
    rows = json.loads(out.read_text())["runs"]
    ways = ("heads", "propagation", "propagation, shares")
    assert [(row["seed"], row["by"]) for row in rows] == [(seed, by) for seed in (1, 2) for by in ways]
    assert all(row["right"] > 0.3 for row in rows), "a guess has .1"
    assert [row["right"] for row in rows if row["by"] == ways[1]] != [
        row["right"] for row in rows if row["by"] == ways[2]
    ]


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


def test_the_surest_of_each_class_by_hand(benchmark_script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of each class. The surest 0 is right; three are next, one of them wrong. Both of class 1 are right."""
    script = benchmark_script("own_votes")
    monkeypatch.setattr(script, "N_SUREST", 2)
    confidence = np.array([0.9, 0.8, 0.8, 0.8, 0.7, 0.7, 0.6])
    labels, truth = np.array([0, 0, 0, 0, 1, 1, 0]), np.array([0, 0, 1, 0, 1, 1, 1])
    soft_labels = np.where(labels[:, None] == np.arange(2), confidence[:, None], 1 - confidence[:, None])
    assert script.accuracy_of_surest(soft_labels, truth) == pytest.approx((1 + 2 / 3 + 1 + 1) / 4)


def test_confidences_tell_the_surest_labels_of_our_own_runs(benchmark_script: Script, tmp_path: Path) -> None:
    script, out = benchmark_script("own_votes"), tmp_path / "own.json"
    script.main(["--models", script.OURS, script.WITH_CONFIDENCES, "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 2 * len({row["set"] for row in rows}) > 4
    for votes_alone, with_confidences in zip(rows[::2], rows[1::2], strict=True):
        assert with_confidences["accuracy"] == pytest.approx(votes_alone["accuracy"], abs=0.005)
        wrong_alone, wrong = (1 - row["accuracy_of_surest"] for row in (votes_alone, with_confidences))
        assert wrong < wrong_alone / 3


def test_what_the_gradient_loses_without_weak_views(benchmark_script: Script, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    told = ["--data", "digits", "--preset", "digits", "--device", "cpu", "--at", "0", "1", "--out", str(out)]
    benchmark_script("weak_gradient").main([*told, "--set", "batch_size=8"])
    rows = json.loads(out.read_text())["rows"]
    assert [row["step"] for row in rows] == [0, 0, 0, 1, 1, 1]
    for row in rows:
        if row["way"] != "whole":
            assert 0.5 < row["convolutions"]["cosine"] < 1

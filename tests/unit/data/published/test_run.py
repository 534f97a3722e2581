"""A run on a published set: its labels are hidden but for those of the split, its fold is used, its name is enough."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl.cli import main

TINY = """--depth 10 --width 1 --strides 4 4 2 --n-lfs 5 --mcl-min-steps 1 --mcl-max-steps 2 --steps 2 --batch-size 10
    --unlabeled-ratio 1 --end-steps 2 --end-batch-size 10 --end-unlabeled-ratio 1 --window 2 --mcl-window 2 --threads 1
    --device cpu""".split()  # noqa: SIM905  # as on the command line


def run_on(name: str, *flags: str) -> dict[str, Any]:
    assert main(["run", "--data", name, *TINY, *flags, "--out", "run"]) == 0
    split: dict[str, Any] = json.loads(Path("run/split.json").read_text())
    return split


def test_a_run_labels_from_a_fold_and_annotates_images_nobody_labelled(write_set: Callable[..., Any]) -> None:
    tiny = write_set("stl10")
    split = run_on("stl10", "--fold", "3", "--n-labels", "1000")
    assert split["labeled"] == {f"train-{row:05d}": int(tiny.train[1][row]) for row in tiny.folds[2]}
    assert "unlabeled-00000" in split["unlabeled"]
    with np.load("run/soft_labels.npz") as file:
        assert len(file["ids"]) == len(tiny.train[0]) + len(tiny.unlabeled)
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["n_evaluated"] == len(tiny.train[0]) - len(tiny.folds[2])  # the others have no truth
    assert summary["n_test"] == len(tiny.test[0])


def test_a_run_finds_its_set_again_and_notices_another_in_its_place(
    write_set: Callable[..., Any],
    data_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_set("mnist")
    run_on("mnist", "--labels-per-class", "1")
    (data_folder.parent / "elsewhere").mkdir()
    monkeypatch.chdir(data_folder.parent / "elsewhere")
    assert main(["evaluate", "../run"]) == 0
    images = data_folder / "mnist" / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1] + b"\x00")
    assert main(["evaluate", "../run"]) == 2
    assert "the run was made from images of sha256" in capsys.readouterr().err

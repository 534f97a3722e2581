"""`--max-minutes` from the command line: what is chosen, said and written, and a planned run that is resumed."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dpssl import cli
from dpssl.runs import Run
from dpssl.training.watch import Watch

SMALL = ["--window", "2", "--batch-size", "4", "--unlabeled-ratio", "1", "--n-lfs", "5", "--report", "false"]
PLANNED = [*SMALL, "--end-batch-size", "4", "--end-unlabeled-ratio", "1", "--device", "cpu", "--threads", "1"]


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """`pictures(side)`: 40 squares, light or dark, eight of them labelled; returns the flags that name them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSSL_CACHE", str(tmp_path / "cache"))

    def make(side: int) -> list[str]:
        draws = np.random.default_rng(0)
        (tmp_path / "photos").mkdir()
        for number in range(40):
            pixels = draws.integers(0, 90, (side, side, 3)) + 160 * (number % 2)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / f"{number}.png")
        rows = [f"{number}.png,{('dark', 'light')[number % 2]}" for number in range(8)]
        (tmp_path / "labels.csv").write_text("\n".join(["path,label", *rows]) + "\n")
        return ["--data", "photos", "--labels", "labels.csv"]

    return make


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute an image, it measures, and it keeps to that."""
    monkeypatch.setattr("dpssl.calibrate.seconds_per_image", lambda *_: 60.0)
    monkeypatch.setattr("dpssl.training.schedule.Schedule.fit", lambda *_: False)


def settings(run: Path) -> dict[str, Any]:
    tables = tomllib.loads((run / "config.toml").read_text())
    return {name: value for table in tables.values() for name, value in table.items()}


@pytest.mark.usefixtures("slow_machine")
def test_a_plan_is_stated_written_and_resumed(
    pictures: Callable[[int], list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = [*pictures(40), *PLANNED, "--warm-steps", "0", "--max-minutes", "300"]
    assert cli.main(["run", *flags, "--out", "whole"]) == 0
    said = capsys.readouterr().err
    assert "plan for 300 minutes on 1 CPU thread: Wide ResNet-10-1 at 32 pixels, 5 labeling functions" in said
    assert "A GPU is the honest answer" in said
    chosen = settings(tmp_path / "whole")
    assert [chosen["depth"], chosen["width"], chosen["image_size"], chosen["plan"]] == [10, 1, 32, True]
    assert 2 <= chosen["steps"] < 60
    assert chosen["n_lfs"] == 5
    assert f"  {chosen['steps']} steps of 4 + 4 images, then {chosen['end_steps']} of the end model" in said

    after_window = Watch.after_window

    def stop_half_way(watch: Watch, stage: str, step: int, *rest: Any) -> None:
        watch.stop_requested = (stage, step) == ("lfs", 6)
        after_window(watch, stage, step, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Watch, "after_window", stop_half_way)
        assert cli.main(["run", *flags, "--out", "parts"]) == 0
    assert "dpssl resume parts" in capsys.readouterr().err
    assert cli.main(["resume", "parts"]) == 0
    for name in ("votes.npz", "soft_labels.csv", "end_model.safetensors"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.usefixtures("slow_machine")
def test_what_goes_together_may_come_from_the_plan(
    pictures: Callable[[int], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Labels spread only with a consensus and a start: neither is asked for, photographs get both."""
    flags = [*pictures(40), *PLANNED, "--max-minutes", "300", "--warm-batch-size", "8", "--propagation-steps", "4"]
    assert cli.main(["run", *flags, "--out", "run"]) == 0
    chosen = settings(tmp_path / "run")
    assert [chosen["pseudo_labels"], chosen["propagation_steps"]] == ["consensus", 4]
    assert chosen["warm_steps"] > 0
    said = capsys.readouterr().err
    assert "images of 40 pixels: the settings of preset photos" in said, "though the folder has the preset's name"
    assert "labels spread among neighbours" in said


def test_steps_that_are_given_are_trained(
    pictures: Callable[[int], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--steps", "2", "--end-steps", "2", "--mcl-max-steps", "2", "--depth", "10", "--width", "1"]
    assert cli.main(["run", *pictures(20), *PLANNED, *flags, "--max-minutes", "5", "--out", "run"]) == 0
    assert "plan for" not in capsys.readouterr().err
    chosen = settings(tmp_path / "run")
    assert [chosen["steps"], chosen["strides"], chosen["plan"]] == [2, [1, 2, 2], False]


def test_small_images_get_the_small_network(
    pictures: Callable[[int], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--steps", "2", "--end-steps", "2", "--mcl-max-steps", "2", "--learning-rate", "0.02"]
    assert cli.main(["run", *pictures(8), *PLANNED, *flags, "--out", "run"]) == 0
    assert "images of 8 pixels: the settings of preset digits" in capsys.readouterr().err
    chosen = settings(tmp_path / "run")
    assert [chosen["depth"], chosen["width"], chosen["strides"]] == [10, 1, [1, 2, 1]]
    assert [chosen["learning_rate"], chosen["data"], chosen["threads"]] == [0.02, "photos", 1]


@pytest.mark.usefixtures("slow_machine")
def test_days_on_a_cpu_are_announced(
    pictures: Callable[[int], list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(run: Run) -> None:
        run.stop()

    monkeypatch.setattr("dpssl.pipeline.train_labeling_functions", nothing)
    monkeypatch.setattr("dpssl.pipeline.train_classifier", nothing)
    assert cli.main(["run", *pictures(32), "--device", "cpu", "--out", "run"]) == 0
    said = capsys.readouterr().err
    assert "hours on a CPU" in said
    assert "--max-minutes" in said


def test_a_run_that_falls_behind_is_shortened_and_done(
    pictures: Callable[[int], list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dpssl.calibrate.seconds_per_image", lambda *_: 1.0)
    monkeypatch.setattr(Watch, "seconds_left", lambda watch: 0.0)  # every step is late
    flags = [*PLANNED, "--warm-steps", "0", "--max-minutes", "60"]
    assert cli.main(["run", *pictures(20), *flags, "--out", "run"]) == 0
    said = capsys.readouterr().err
    planned = settings(tmp_path / "run")["steps"]
    assert planned > 50
    assert f"6 steps in place of {planned}: the machine was slower than planned" in said
    assert "Step 1 of 3, labeling functions: 6/6" in said
    assert (tmp_path / "run" / "summary.json").exists()

"""metrics.jsonl and the events of TensorBoard tell the same, also after a resume."""

import json
from pathlib import Path

import pytest

from dpssl.errors import InputError
from dpssl.training import run_log
from dpssl.training.run_log import RunLog


def events(folder: Path) -> dict[tuple[str, int, str], float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for stage in sorted(path for path in folder.iterdir() if path.is_dir()):
        read = EventAccumulator(str(stage)).Reload()
        for name in read.Tags()["scalars"]:
            found |= {(stage.name, event.step, name): event.value for event in read.Scalars(name)}
    return found


def lines(path: Path) -> dict[tuple[str, int, str], float]:
    read = map(json.loads, path.read_text().splitlines())
    return {
        (line["stage"], line["step"], name): pytest.approx(value)
        for line in read
        for name, value in line.items()
        if name not in ("stage", "step")
    }


def test_both_hold_the_same_curves_after_a_stage_is_taken_up_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    path = tmp_path / "metrics.jsonl"
    log = RunLog(path, track=True)
    log.write("mcl", 50, {"loss": 2.0})
    for step in (10, 20, 30):
        log.write("lfs", step, {"loss": 1 / step, "coverage": 0.5})
    log.close()
    resumed = RunLog(path, track=True)
    resumed.rewind("lfs", 20)
    resumed.write("lfs", 30, {"loss": 7.0, "coverage": 0.25})
    resumed.write("end", 5, {"loss": 3.0})
    resumed.close()
    assert events(tmp_path / "tensorboard") == lines(path)
    assert len(lines(path)) == 8


def test_without_being_asked_no_event_is_written(tmp_path: Path) -> None:
    RunLog(tmp_path / "metrics.jsonl").write("mcl", 50, {"loss": 2.0})
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]
    RunLog(None, track=True).write("mcl", 50, {"loss": 2.0})


def test_without_tensorboard_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'dpssl\[track\]'"):
        run_log.require_tensorboard()

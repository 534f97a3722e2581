import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dpssl import runs
from dpssl.config import Config
from dpssl.errors import RunFolderError
from dpssl.progress import ProgressBar
from dpssl.training.checkpoint import CheckpointStore
from dpssl.training.run_log import RunLog
from dpssl.training.step import TrainStep
from dpssl.training.watch import StopRequested, Watch

MakeStep = Callable[..., TrainStep]
SETTINGS = {"n_lfs": 20, "strides": [1, 2, 2], "learning_rate": 0.03}


def watch(folder: Path, settings: dict[str, Any] | None = None, **limits: Any) -> Watch:
    return Watch(folder, SETTINGS if settings is None else settings, progress=False, **limits)


def test_a_stage_continues_from_its_checkpoint(tmp_path: Path, make_step: MakeStep) -> None:
    trained, fresh = make_step(seed=1), make_step(seed=2)
    first = watch(tmp_path, checkpoint_minutes=0)
    assert first.begin("lfs", "title", 10, trained.state) == (0, {})
    assert not first.has_checkpoint("lfs")
    trained.run(0.1)
    first.after_window("lfs", 4, {"loss": 1.0}, trained.state, {"losses": [1.0]})
    assert first.has_checkpoint("lfs")
    assert not first.has_checkpoint("end")

    step, notes = watch(tmp_path).begin("lfs", "title", 10, fresh.state)
    assert step == 4
    assert notes["losses"] == [1.0]
    assert torch.equal(fresh.state.optimizer.weights, trained.state.optimizer.weights)
    first.clear("lfs")
    assert not first.has_checkpoint("lfs")


def test_checkpoints_wait_for_their_time(tmp_path: Path, make_step: MakeStep) -> None:
    patient = watch(tmp_path, checkpoint_minutes=1000)
    patient.after_window("lfs", 4, {"loss": 1.0}, make_step().state, {})
    assert not patient.has_checkpoint("lfs")


@pytest.mark.parametrize(("name", "value"), [("n_lfs", 21), ("strides", [1, 2, 1]), ("learning_rate", 0.06)])
def test_other_settings_are_refused_by_name(tmp_path: Path, make_step: MakeStep, name: str, value: object) -> None:
    step = make_step()
    watch(tmp_path, checkpoint_minutes=0).after_window("lfs", 4, {"loss": 1.0}, step.state, {})
    before = SETTINGS.get(name)
    with pytest.raises(RunFolderError) as problem:
        watch(tmp_path, {**SETTINGS, name: value}).begin("lfs", "title", 10, step.state)
    assert f"started with {name} = {before!r}, now it is {value!r}" in str(problem.value)
    assert "config.toml" in str(problem.value)


def test_a_setting_that_the_program_has_learnt_since_is_no_difference(tmp_path: Path, make_step: MakeStep) -> None:
    step = make_step()
    watch(tmp_path, checkpoint_minutes=0).after_window("lfs", 4, {"loss": 1.0}, step.state, {})
    assert watch(tmp_path, {**SETTINGS, "added": True}).begin("lfs", "title", 10, step.state)[0] == 4


def test_a_checkpoint_of_another_device_is_refused(tmp_path: Path, make_step: MakeStep) -> None:
    state = make_step().state
    notes = {"settings": SETTINGS, "minutes": 0.0, "device": "cuda"}
    CheckpointStore(tmp_path / "checkpoint", "lfs").save(4, state.files(), notes)
    with pytest.raises(RunFolderError, match=r"stage lfs was written on cuda.*resume with --device cuda"):
        watch(tmp_path).begin("lfs", "title", 10, state)


def test_a_checkpoint_names_its_device(tmp_path: Path, make_step: MakeStep) -> None:
    watch(tmp_path, checkpoint_minutes=0).after_window("lfs", 4, {"loss": 1.0}, make_step().state, {})
    checkpoint = CheckpointStore(tmp_path / "checkpoint", "lfs").latest()
    assert checkpoint is not None
    assert checkpoint.notes["device"] == "cpu"


def test_a_refused_checkpoint_changes_nothing(tmp_path: Path, make_step: MakeStep) -> None:
    watch(tmp_path, checkpoint_minutes=0).after_window("lfs", 4, {"loss": 1.0}, make_step(seed=1).state, {})
    other = make_step(seed=2).state
    before = other.optimizer.weights.clone()
    with pytest.raises(RunFolderError):
        watch(tmp_path, {**SETTINGS, "n_lfs": 3}).begin("lfs", "title", 10, other)
    assert torch.equal(other.optimizer.weights, before)


def test_out_of_time_stops_with_a_checkpoint(tmp_path: Path, make_step: MakeStep) -> None:
    hurried = watch(tmp_path, max_minutes=1e-9, checkpoint_minutes=1000)
    with pytest.raises(StopRequested):
        hurried.after_window("lfs", 4, {"loss": 1.0}, make_step().state, {})
    assert watch(tmp_path).begin("lfs", "title", 10, make_step().state)[0] == 4


def test_a_request_to_stop_stops_with_a_checkpoint(tmp_path: Path, make_step: MakeStep) -> None:
    asked = watch(tmp_path, checkpoint_minutes=1000)
    asked.after_window("lfs", 4, {"loss": 1.0}, make_step().state, {})
    asked.stop_requested = True
    with pytest.raises(StopRequested):
        asked.after_window("lfs", 8, {"loss": 1.0}, make_step().state, {})
    assert watch(tmp_path).begin("lfs", "title", 10, make_step().state)[0] == 8


def test_a_signal_while_a_step_begins_is_not_lost(
    make_step: MakeStep, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the step has looked for a request and before it has a watch to tell of one."""
    made = make_run(files=())
    run = runs.Run(made.folder, Config(), made.dataset, made.split, {}, progress=False)

    def interrupted(*arguments: Any, **limits: Any) -> Watch:
        run.stop()
        return Watch(*arguments, **limits)

    monkeypatch.setattr(runs, "Watch", interrupted)
    with pytest.raises(StopRequested), run.step("lfs") as asked:
        asked.after_window("lfs", 4, {"loss": 1.0}, make_step().state, {})
    assert watch(made.folder.folder).has_checkpoint("lfs")


def test_no_time_limit_by_default(tmp_path: Path, make_step: MakeStep) -> None:
    patient = watch(tmp_path, max_minutes=0.0, minutes_before=1e9)
    patient.after_window("lfs", 4, {"loss": 1.0}, make_step().state, {})
    assert not patient.has_checkpoint("lfs"), "it neither stopped nor was due for a checkpoint"


def test_minutes_before_a_resume_count(tmp_path: Path, make_step: MakeStep) -> None:
    earlier = watch(tmp_path, checkpoint_minutes=0, minutes_before=30.0)
    earlier.after_window("lfs", 4, {"loss": 1.0}, make_step().state, {})
    later = watch(tmp_path)
    later.begin("lfs", "title", 10, make_step().state)
    assert later.minutes() >= 30
    assert later.minutes_now() < 30


def test_without_a_folder_nothing_is_written(tmp_path: Path, make_step: MakeStep, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    free = Watch(progress=False, checkpoint_minutes=0)
    assert free.begin("lfs", "title", 10, make_step().state) == (0, {})
    free.after_window("lfs", 4, {"loss": 1.0}, make_step().state, {})
    assert not free.has_checkpoint("lfs")
    free.clear("lfs")
    assert list(tmp_path.iterdir()) == []


# The log


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_window_is_a_line(tmp_path: Path, make_step: MakeStep) -> None:
    logged = watch(tmp_path)
    logged.after_window("lfs", 4, {"loss": 1.5, "coverage": 0.5}, make_step().state, {})
    (line,) = lines(tmp_path / "metrics.jsonl")
    assert {key: line[key] for key in ("stage", "step", "loss", "coverage")} == {
        "stage": "lfs", "step": 4, "loss": 1.5, "coverage": 0.5,
    }  # fmt: skip
    assert line["minutes"] >= 0


def test_a_resumed_stage_drops_what_it_trains_again(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "metrics.jsonl")
    for stage, step in (("mcl", 4), ("mcl", 8), ("lfs", 4), ("lfs", 8), ("lfs", 12)):
        log.write(stage, step, {"loss": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "lfs", "st')  # a kill in the middle of a line
    log.rewind("lfs", 8)
    assert [(line["stage"], line["step"]) for line in lines(tmp_path / "metrics.jsonl")] == [
        ("mcl", 4), ("mcl", 8), ("lfs", 4), ("lfs", 8),
    ]  # fmt: skip
    log.write("lfs", 12, {"loss": 2.0})
    assert lines(tmp_path / "metrics.jsonl")[-1] == {"stage": "lfs", "step": 12, "loss": 2.0}
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_rewinding_no_log_makes_none(tmp_path: Path) -> None:
    RunLog(tmp_path / "metrics.jsonl").rewind("lfs", 0)
    RunLog(None).rewind("lfs", 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, the disk that is always full")
def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl"):
        RunLog(tmp_path / "metrics.jsonl").write("lfs", 4, {"loss": 1.0})


def test_a_bar_off_the_terminal_prints_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar("Step 1", total=1000)
    for done in range(1, 1001):
        bar.update(done, {"loss": 0.5, "coverage": 0.25})
    bar.close()
    printed = capsys.readouterr().err.splitlines()
    assert 5 <= len(printed) <= 11
    assert printed[-1].startswith("Step 1: 1000/1000  loss 0.50  coverage 0.25")


def test_a_hidden_bar_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar("Step 1", total=10, shown=False)
    bar.update(10, {"loss": 0.5})
    bar.close()
    assert capsys.readouterr().err == ""

"""A stage that is stopped inside of a long window goes on as if it had never been."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dpssl.errors import TrainingError
from dpssl.training.stage import Stage, train_stage
from dpssl.training.step import TrainStep
from dpssl.training.watch import StopRequested, Watch

MakeStep = Callable[..., TrainStep]
STAGE = Stage("lfs", "title", n_steps=10, window=4, learning_rate=lambda place: 0.01 / (1 + place))


class StopsAt(Watch):
    """Is asked to stop after so many steps."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__(folder, progress=False)
        self.step = step

    def inside_window(self, stage: str, step: int, *state_and_notes: Any) -> None:
        self.stop_requested = step >= self.step
        super().inside_window(stage, step, *state_and_notes)


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpssl.training.watch.LONG_WINDOW", 0.0)


def train(step: TrainStep, watch: Watch, is_over: Callable[..., bool] = lambda *_: False) -> list[dict[str, float]]:
    """Returns the lines of the log."""
    train_stage(STAGE, step.compute, step.state, watch, is_over)
    assert watch.folder is not None
    lines = [json.loads(line) for line in (watch.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name != "minutes"} for line in lines]


@pytest.mark.parametrize("stopped_at", [1, 6, 7, 9])
def test_stopped_and_resumed_it_sees_the_windows_of_an_unbroken_run(
    make_step: MakeStep, tmp_path: Path, no_patience: None, stopped_at: int
) -> None:
    unbroken = make_step(seed=1)
    expected = train(unbroken, Watch(tmp_path / "unbroken", progress=False))
    assert [line["step"] for line in expected] == [4, 8, 10]
    with pytest.raises(StopRequested):
        train(make_step(seed=1), StopsAt(tmp_path / "cut", stopped_at))
    resumed = make_step(seed=2)  # all that matters comes from the checkpoint
    assert train(resumed, Watch(tmp_path / "cut", progress=False)) == expected
    assert torch.equal(resumed.state.optimizer.weights, unbroken.state.optimizer.weights)


def test_its_own_stopping_rule_acts_where_windows_end(make_step: MakeStep, tmp_path: Path, no_patience: None) -> None:
    """Resumed inside of a window, of which the rule would already have been true, it ends with the window."""

    def is_over(done: int, losses: list[float]) -> bool:
        return done >= 6

    expected = train(make_step(seed=1), Watch(tmp_path / "unbroken", progress=False), is_over)
    with pytest.raises(StopRequested):
        train(make_step(seed=1), StopsAt(tmp_path / "cut", 7), is_over)
    assert train(make_step(seed=2), Watch(tmp_path / "cut", progress=False), is_over) == expected
    assert [line["step"] for line in expected] == [4, 8]


def test_windows_that_are_short_are_waited_for(make_step: MakeStep, tmp_path: Path) -> None:
    watch = StopsAt(tmp_path, 5)
    with pytest.raises(StopRequested):
        train(make_step(), watch)
    assert watch.begin("lfs", "title", 10, make_step().state)[0] == 8


def test_a_loss_that_is_no_number_is_not_saved_inside_of_a_window(
    make_step: MakeStep, tmp_path: Path, no_patience: None
) -> None:
    watch = StopsAt(tmp_path, 2)
    with pytest.raises(TrainingError, match="the loss is nan after step 2"):
        train(make_step(loss=float("nan")), watch)
    assert not watch.has_checkpoint("lfs")

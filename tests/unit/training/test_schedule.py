import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dpssl.training.optim import cosine_learning_rate
from dpssl.training.schedule import Pace, Schedule
from dpssl.training.stage import Stage, train_stage
from dpssl.training.step import TrainStep
from dpssl.training.watch import StopRequested, Watch


def test_without_a_change_every_step_has_its_own_place() -> None:
    schedule = Schedule(1000, 50)
    assert [schedule.position(step) for step in (0, 7, 999, 1000)] == [0, 7, 999, 1000]
    assert not schedule.fit(500, 1.0, 500.0)
    assert not schedule.fit(500, 1.0, 470.0)  # a little late
    assert not schedule.fit(500, 1.0, 600.0)  # a little early
    assert not schedule.fit(1000, 1.0, 600.0)  # done
    assert schedule.n_steps == 1000


def test_a_cut_keeps_what_the_time_allows_and_still_ends_at_the_end() -> None:
    schedule = Schedule(1000, 50)
    assert schedule.fit(200, 2.0, 850.0)
    assert schedule.n_steps == 200 + 400  # 403 steps fit, eight windows of 50
    assert schedule.position(200) == 200
    assert schedule.position(201) == 202
    assert schedule.position(600) == 1000
    assert schedule.fit(400, 2.0, 120.0)
    assert schedule.n_steps == 450
    places = [schedule.position(step) for step in range(451)]
    assert places[400] == 600
    assert places == sorted(places)
    assert places[-1] == 1000
    again = Schedule(1000, 50, schedule.changes)
    assert [again.position(step) for step in range(451)] == places


def test_time_left_over_is_filled() -> None:
    schedule = Schedule(1000, 50)
    assert schedule.fit(500, 1.0, 1060.0)
    assert schedule.n_steps == 1500
    assert [schedule.position(step) for step in (500, 502, 1500)] == [500, 501, 1000]
    assert not schedule.fit(550, 1.0, 1010.0)


def test_the_last_window_is_never_cut() -> None:
    schedule = Schedule(100, 50)
    assert schedule.fit(0, 1.0, -5.0)
    assert schedule.n_steps == 50
    assert not schedule.fit(0, 1.0, -5.0)


def test_a_pace_needs_two_windows_and_forgets_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 14.0, 30.0, *(30.0 + 4 * n for n in range(1, 31))])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    pace = Pace()
    paces = [pace.seconds_per_step(4 * n) for n in range(1, 34)]
    assert paces[:3] == [None, 1.0, 2.5]
    assert paces[-1] == 1.0


class LateWatch(Watch):
    """Time runs short after four steps, and the run is stopped after `stop_after`."""

    stop_after = 0

    def after_window(self, stage: str, step: int, *rest: object) -> None:  # type: ignore[override]
        self.stop_requested = step == self.stop_after
        self.due_minutes = 0.0 if step >= 4 else math.inf
        super().after_window(stage, step, *rest)  # type: ignore[arg-type]


def test_a_shortened_stage_resumes_to_the_same_weights(tmp_path: Path, make_step: Callable[..., TrainStep]) -> None:
    rates: dict[str, list[float]] = {}

    def train(name: str, folder: Path, stop_after: int = 0) -> torch.Tensor:
        step = make_step(seed=1)
        seen = rates.setdefault(name, [])

        def learning_rate(place: float) -> float:
            seen.append(cosine_learning_rate(place, 40, 1e-3))
            return seen[-1]

        watch = LateWatch(folder, {}, progress=False)
        watch.stop_after = stop_after
        stage = Stage("end", "title", 40, 2, learning_rate, fits_time=True)
        train_stage(stage, step.compute, step.state, watch)
        return step.state.optimizer.weights

    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = train("whole", tmp_path / "whole")
    assert 6 < len(rates["whole"]) < 40
    with pytest.raises(StopRequested):
        train("parts", tmp_path / "parts", stop_after=6)
    assert torch.equal(train("parts", tmp_path / "parts"), whole)
    assert rates["parts"] == rates["whole"]

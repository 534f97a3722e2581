"""A stage of training, from its first step or its last checkpoint to its end."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from dpssl.config import OptimConfig
from dpssl.data.feed import Feed
from dpssl.training.loop import require_finite, run_windows
from dpssl.training.optim import cosine_learning_rate
from dpssl.training.schedule import Pace, Schedule
from dpssl.training.statistics import settle_statistics
from dpssl.training.step import LossAndMetrics, TrainState, TrainStep
from dpssl.training.watch import Watch


@dataclass(frozen=True)
class Stage:
    """What distinguishes one stage from another."""

    name: str  # in the log and the checkpoints
    title: str  # on the progress bar
    n_steps: int
    window: int  # steps between two log lines
    learning_rate: Callable[[float], float]  # of a step, or of a place between two
    fresh_statistics: bool = False  # measured anew at the end, for the averaged weights: dpssl.training.statistics
    fits_time: bool = False  # fewer or more steps where the run has a time budget: dpssl.training.schedule


def annealed_stage(
    name: str,
    title: str,
    n_steps: int,
    window: int,
    learning_rate: float,
    optim: OptimConfig,
    fits_time: bool = False,
) -> Stage:
    """A stage that ends with the weights that are kept: its learning rate falls along a cosine."""
    return Stage(
        name,
        title,
        n_steps,
        window,
        learning_rate=lambda step: cosine_learning_rate(step, n_steps, learning_rate, optim.final_lr_fraction),
        fresh_statistics=optim.fresh_statistics,
        fits_time=fits_time,
    )


def train_stage(
    stage: Stage,
    compute: Callable[[], LossAndMetrics],
    state: TrainState,
    watch: Watch,
    is_over: Callable[[int, list[float]], bool] = lambda done, losses: False,
    feed: Feed | None = None,
) -> None:
    """Repeat `compute` and an update until `n_steps` are done or `is_over(steps done, window losses)`.

    `feed` brings the images that `compute` reads.
    """
    first, notes = watch.begin(stage.name, stage.title, stage.n_steps, state)
    losses: list[float] = list(notes.get("losses", []))
    schedule = Schedule(stage.n_steps, stage.window, notes.get("changes", []))
    pace = Pace()
    watch.change_steps(schedule.n_steps)  # those of a resumed stage may have changed

    def noted() -> dict[str, Any]:
        return {"losses": losses, "changes": schedule.changes}

    def after_window(done: int, metrics: dict[str, float]) -> bool:
        losses.append(metrics["loss"])
        seconds = pace.seconds_per_step(done)
        if seconds and stage.fits_time and watch.is_timed and schedule.fit(done, seconds, watch.seconds_left()):
            watch.change_steps(schedule.n_steps)
        watch.after_window(stage.name, done, metrics, state, noted())
        return is_over(done, losses)

    def inside_window(done: int) -> None:
        def noted_inside() -> dict[str, Any]:
            unread = step.unread()
            require_finite(unread["sums"]["loss"], done, stage.learning_rate)
            return {**noted(), "unread": unread}

        watch.inside_window(stage.name, done, state, noted_inside)

    step = TrainStep(compute, state, feed.advance) if feed else TrainStep(compute, state)
    with feed or nullcontext():
        if state.optimizer.weights.is_cuda:
            step.capture()
        if feed:
            feed.seek(first)
        if "unread" in notes:
            step.take_up(notes["unread"])
        run_windows(
            step,
            first_step=first,
            # It may have been stopped just as it ended.
            n_steps=(lambda: first) if is_over(first - step.n_unread, losses) else (lambda: schedule.n_steps),
            window=stage.window,
            learning_rate=lambda step: stage.learning_rate(schedule.position(step)),
            after_window=after_window,
            inside_window=inside_window,
        )
        if stage.fresh_statistics:
            settle_statistics(state, compute, feed.advance if feed else lambda: None)
    watch.end()
    if schedule.changes:
        pace_met = "slower" if schedule.n_steps < stage.n_steps else "faster"
        watch.say(f"{schedule.n_steps:,} steps in place of {stage.n_steps:,}: the machine was {pace_met} than planned")

"""A stage of training, from its first step or its last checkpoint to its end."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from dpssl.data.feed import Feed
from dpssl.training.loop import run_windows
from dpssl.training.step import LossAndMetrics, TrainState, TrainStep
from dpssl.training.watch import Watch


@dataclass(frozen=True)
class Stage:
    """What distinguishes one stage from another."""

    name: str  # in the log and the checkpoints
    title: str  # on the progress bar
    n_steps: int
    window: int  # steps between two log lines
    learning_rate: Callable[[int], float]  # of a step


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

    def after_window(done: int, metrics: dict[str, float]) -> bool:
        losses.append(metrics["loss"])
        watch.after_window(stage.name, done, metrics, state, {"losses": losses})
        return is_over(done, losses)

    step = TrainStep(compute, state, feed.advance) if feed else TrainStep(compute, state)
    with feed or nullcontext():
        if state.optimizer.weights.is_cuda:
            step.capture()
        if feed:
            feed.seek(first)
        run_windows(
            step,
            first_step=first,
            n_steps=first if is_over(first, losses) else stage.n_steps,  # it may have been stopped just as it ended
            window=stage.window,
            learning_rate=stage.learning_rate,
            after_window=after_window,
        )
    watch.end()

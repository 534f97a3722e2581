"""The loop shared by every network that is trained: windows of steps, with all bookkeeping between windows.

A window ends with one reading of the metrics. Logging and a stage's own stopping rule act there and nowhere else. A run
may be stopped inside of a window that takes long; what it has summed until then goes with the checkpoint, so a run that
was stopped and resumed sees exactly the windows of an unbroken one.
"""

import math
from collections.abc import Callable

from dpssl.errors import TrainingError
from dpssl.training.step import TrainStep


def require_finite(loss: float, done: int, learning_rate: Callable[[int], float]) -> None:
    """Nothing is saved after a loss that is no number."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss is {loss} after step {done}: start a new run with a lower --learning-rate "
            f"(now {learning_rate(0):g}); the last good checkpoint is kept"
        )


def run_windows(
    step: TrainStep,
    *,
    first_step: int,
    n_steps: Callable[[], int],
    window: int,
    learning_rate: Callable[[int], float],
    after_window: Callable[[int, dict[str, float]], bool],
    inside_window: Callable[[int], None] = lambda done: None,
) -> int:
    """Train from `first_step` up to `n_steps()`; `after_window(steps done, mean metrics)` returns True to stop early.

    `after_window` may change what `n_steps` answers. `inside_window(steps done)` is called after every other step. The
    first window is shorter by the steps whose metrics `step` has not read yet. Returns the number of steps done.
    """
    done = first_step
    while done < n_steps():
        stop = min(done - step.n_unread + window, n_steps())
        for index in range(done, stop):
            step.run(learning_rate(index))
            if index + 1 < stop:
                inside_window(index + 1)
        done = stop
        metrics = step.read_metrics()
        require_finite(metrics["loss"], done, learning_rate)
        if after_window(done, metrics):
            break
    return done

"""The loop shared by every network that is trained: windows of steps, with all bookkeeping between windows.

A window ends with one reading of the metrics. Logging, checkpoints, the time limit and a stage's own stopping rule act
there and nowhere else, so a run that was stopped and resumed sees exactly the windows of an unbroken one.
"""

import math
from collections.abc import Callable

from dpssl.errors import TrainingError
from dpssl.training.step import TrainStep


def run_windows(
    step: TrainStep,
    *,
    first_step: int,
    n_steps: Callable[[], int],
    window: int,
    learning_rate: Callable[[int], float],
    after_window: Callable[[int, dict[str, float]], bool],
) -> int:
    """Train from `first_step` up to `n_steps()`; `after_window(steps done, mean metrics)` returns True to stop early.

    `after_window` may change what `n_steps` answers. Returns the number of steps done.
    """
    done = first_step
    while done < n_steps():
        stop = min(done + window, n_steps())
        for index in range(done, stop):
            step.run(learning_rate(index))
        done = stop
        metrics = step.read_metrics()
        if not math.isfinite(metrics["loss"]):
            raise TrainingError(
                f"the loss is {metrics['loss']} after step {done}: start a new run with a lower --learning-rate "
                f"(now {learning_rate(0):g}); the last good checkpoint is kept"
            )
        if after_window(done, metrics):
            break
    return done

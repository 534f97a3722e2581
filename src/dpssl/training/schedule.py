"""A stage's steps in a run with a time budget: fewer or more than planned, over the same course of the learning rate.

A plan relies on a few seconds of measurement. Where the machine turns out slower, the steps that are left are cut;
where it is faster, there are more of them. From then on a step moves on by more or less than one place of the schedule,
so the learning rate ends where it was to end. The changes are kept in the checkpoint: a resumed run goes through the
same learning rates as one that was never stopped.
"""

import time
from collections import deque
from collections.abc import Sequence

LATE, EARLY = 1.1, 0.8  # of the time left: what is between needs no change
CAUTION = 0.95  # share of the time left that is filled
N_WINDOWS = 30  # the latest, whose pace counts


class Schedule:
    """Which place of a schedule of `planned` steps each step takes."""

    def __init__(self, planned: int, window: int, changes: Sequence[Sequence[int]] = ()) -> None:
        self.planned, self.window = planned, window
        self.changes = [[int(at), int(total)] for at, total in changes]  # at which step, and steps in all from then on

    @property
    def n_steps(self) -> int:
        return self.changes[-1][1] if self.changes else self.planned

    def position(self, step: int) -> float:
        """0 at the first step, `planned` at the end, whatever was changed."""
        place, start, total = 0.0, 0, self.planned
        for at, new_total in self.changes:
            if step < at:
                break
            place += (at - start) * (self.planned - place) / (total - start)
            start, total = at, new_total
        return place + (step - start) * (self.planned - place) / (total - start) if step > start else place

    def fit(self, done: int, seconds_per_step: float, seconds_left: float) -> bool:
        """Make the steps left as many as the time allows, in whole windows and at least one. True for a change."""
        needed = (self.n_steps - done) * seconds_per_step
        if EARLY * seconds_left <= needed <= LATE * seconds_left or done >= self.n_steps:
            return False
        total = done + self.window * max(1, int(CAUTION * seconds_left / seconds_per_step / self.window))
        if abs(total - self.n_steps) < self.window:
            return False
        self.changes.append([done, total])
        return True


class Pace:
    """Seconds a step, over the latest windows; the very first is a warm-up."""

    def __init__(self) -> None:
        self._ends: deque[tuple[int, float]] = deque(maxlen=N_WINDOWS + 1)

    def seconds_per_step(self, done: int) -> float | None:
        """Called as each window ends; None as long as there is nothing to tell."""
        self._ends.append((done, time.monotonic()))
        (first, since), (last, now) = self._ends[0], self._ends[-1]
        return (now - since) / (last - first) if last > first else None

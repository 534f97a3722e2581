"""A progress bar on standard error."""

import sys
import time
from collections.abc import Mapping
from typing import Any


class ProgressBar:
    """tqdm on a terminal, a line now and then elsewhere, nothing when switched off."""

    N_LINES = 10  # of a bar that is not on a terminal

    def __init__(self, title: str, total: int, done: int = 0, shown: bool = True, unit: str = "step") -> None:
        self.title, self.total, self.shown = title, total, shown
        self._bar: Any = None
        self._first, self._printed, self._started = done, done, time.monotonic()
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=done, desc=title, unit=unit, dynamic_ncols=True)

    def update(self, done: int, values: Mapping[str, float]) -> None:
        """So many are done; `values` are shown beside it, those of before where there are none."""
        text = "  ".join(f"{name} {value:.2f}" for name, value in values.items())
        if self._bar is not None:
            if text:
                self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)
        elif self.shown and (done - self._printed >= self.total / self.N_LINES or done == self.total):
            self._printed = done
            left = (time.monotonic() - self._started) / (done - self._first) * (self.total - done)
            parts = [f"{self.title}: {done}/{self.total}", text, f"{_as_time(left)} left"]
            print("  ".join(filter(None, parts)), file=sys.stderr, flush=True)

    def change_total(self, total: int) -> None:
        """Go on to another end."""
        self.total = total
        if self._bar is not None:
            self._bar.total = total

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _as_time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"

"""What a run says while it trains: every number to metrics.jsonl, a progress bar to the terminal."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpssl.run_folder import RunFolder


class RunLog:
    """The lines of metrics.jsonl: a stage, a step and its numbers. Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.folder = RunFolder(path.parent) if path else None
        self.name = path.name if path else ""

    def write(self, stage: str, step: int, values: Mapping[str, Any]) -> None:
        if self.folder is not None:
            self.folder.append_jsonl(self.name, {"stage": stage, "step": step, **values})

    def rewind(self, stage: str, step: int) -> None:
        """Drop what `stage` logged after `step`: a resumed stage will train it again."""
        if self.folder is not None and self.folder.has(self.name):
            lines = self.folder.read_jsonl(self.name)
            self.folder.write_jsonl(
                self.name, [line for line in lines if line["stage"] != stage or line["step"] <= step]
            )


class ProgressBar:
    """tqdm on a terminal, a line now and then elsewhere, nothing when switched off."""

    N_LINES = 10  # of a bar that is not on a terminal

    def __init__(self, title: str, total: int, done: int = 0, shown: bool = True) -> None:
        self.title, self.total, self.shown = title, total, shown
        self._bar: Any = None
        self._first, self._printed, self._started = done, done, time.monotonic()
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=done, desc=title, unit="step", dynamic_ncols=True)

    def update(self, done: int, values: Mapping[str, float]) -> None:
        text = "  ".join(f"{name} {value:.2f}" for name, value in values.items())
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)
        elif self.shown and (done - self._printed >= self.total / self.N_LINES or done == self.total):
            self._printed = done
            left = (time.monotonic() - self._started) / (done - self._first) * (self.total - done)
            print(f"{self.title}: {done}/{self.total}  {text}  {_as_time(left)} left", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _as_time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"

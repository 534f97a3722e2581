"""What a run says while it trains: every number to metrics.jsonl, a progress bar to the terminal."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class RunLog:
    """Appends a JSON object a line; numbers of a resumed stage that it will train again are dropped first."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def write(self, stage: str, step: int, values: Mapping[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"stage": stage, "step": step, **values}) + "\n")

    def rewind(self, stage: str, step: int) -> None:
        """Drop what `stage` logged after `step`, and a last line that was cut off."""
        if self.path is None or not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            if entry["stage"] != stage or entry["step"] <= step:
                kept.append(line + "\n")
        draft = self.path.with_name(f".{self.path.name}.draft")
        draft.write_text("".join(kept), encoding="utf-8")
        os.replace(draft, self.path)


class ProgressBar:
    """tqdm on a terminal, a line now and then elsewhere, nothing when switched off."""

    N_LINES = 10  # of a bar that is not on a terminal

    def __init__(self, title: str, total: int, done: int = 0, shown: bool = True) -> None:
        self.title, self.total, self.shown = title, total, shown
        self._bar: Any = None
        self._printed = done
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=done, desc=title, unit="step", dynamic_ncols=True)

    def update(self, done: int, values: Mapping[str, float]) -> None:
        text = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)
        elif self.shown and (done - self._printed >= self.total / self.N_LINES or done == self.total):
            self._printed = done
            print(f"{self.title}: {done}/{self.total}  {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

"""What happens between two windows of training: log, progress, checkpoint, time limit, a request to stop."""

import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpssl.errors import RunFolderError
from dpssl.progress import ProgressBar
from dpssl.training.checkpoint import CheckpointStore
from dpssl.training.distributed import anyone, on_writer, share, spread
from dpssl.training.run_log import RunLog
from dpssl.training.step import TrainState

# Metric -> word on the bar.
SHOWN_METRICS = {"loss": "loss", "coverage": "coverage", "pseudo_label_rate": "learnt from"}
LONG_WINDOW = 10.0  # seconds, after which nobody waits for its end: what cuts a window writes a checkpoint


class StopRequested(Exception):
    """The run was asked to stop (time limit or signal); a checkpoint has been written."""


class Watch:
    """Looks after one run. Without a folder (the Python API, and all processes but the writer) it keeps no files."""

    def __init__(
        self,
        folder: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        max_minutes: float = 0.0,
        due_minutes: float = math.inf,
        checkpoint_minutes: float = 2.0,
        minutes_before: float = 0.0,
        progress: bool = True,
        track: bool = False,
    ) -> None:
        self.folder, self.settings = folder, dict(settings or {})
        self.max_minutes, self.checkpoint_minutes, self.progress = max_minutes, checkpoint_minutes, progress
        self.log = RunLog(folder / "metrics.jsonl" if folder else None, track)
        self.due_minutes = due_minutes  # from now: stages with `fits_time` end by then
        self.stop_requested = False
        self._started = time.monotonic()
        self._before = minutes_before
        self._checkpointed = self._windowed = time.monotonic()  # when last
        self._bar: ProgressBar | None = None

    def minutes(self) -> float:
        """Minutes this run has taken, those before a resume included."""
        return self._before + self.minutes_now()

    def minutes_now(self) -> float:
        return (time.monotonic() - self._started) / 60

    @property
    def is_timed(self) -> bool:
        return math.isfinite(self.due_minutes)

    def seconds_left(self) -> float:
        """Until the step is due."""
        return 60 * (self.due_minutes - self.minutes_now())

    def has_checkpoint(self, stage: str) -> bool:
        return self.folder is not None and self._store(stage).latest() is not None

    def begin(self, stage: str, title: str, total: int, state: TrainState) -> tuple[int, dict[str, Any]]:
        """Start or continue a stage: load its last checkpoint into `state`. Returns steps done and notes saved."""
        files = None

        def find() -> tuple[int, dict[str, Any]] | None:
            nonlocal files
            checkpoint = self._store(stage).latest() if self.folder else None
            if checkpoint is None:
                return None
            self._require_same_settings(checkpoint.notes["settings"])
            _require_same_device(stage, checkpoint.notes.get("device"), state.generator.device.type)
            files = checkpoint.files
            return checkpoint.step, checkpoint.notes

        step, notes = 0, {}
        found = on_writer(find)
        if found is not None:
            step, notes = found
            files = files or state.files()
            spread(files)
            state.load(files)
            self._before = max(self._before, notes["minutes"])
        self.log.rewind(stage, step)
        self._windowed = time.monotonic()
        self._bar = ProgressBar(title, total, step, self.progress)
        return step, notes

    def after_window(
        self, stage: str, step: int, metrics: Mapping[str, float], state: TrainState, notes: Mapping[str, Any]
    ) -> None:
        self.log.write(stage, step, {**metrics, "minutes": round(self.minutes(), 4)})
        if self._bar is not None:
            self._bar.update(step, {word: metrics[name] for name, word in SHOWN_METRICS.items() if name in metrics})
        self._save_or_stop(stage, step, state, lambda: notes, must_stop=anyone(self._wants_to_stop()))
        self._windowed = time.monotonic()

    def inside_window(self, stage: str, step: int, state: TrainState, notes: Callable[[], Mapping[str, Any]]) -> None:
        """After a step that does not end a window: what cannot wait for the end of a long one.

        Processes that train together do wait, as they stop together.
        """
        if time.monotonic() - self._windowed < LONG_WINDOW or share().size > 1:
            return
        if self._bar is not None:
            self._bar.update(step, {})
        self._save_or_stop(stage, step, state, notes, must_stop=self._wants_to_stop())

    def _wants_to_stop(self) -> bool:
        return self.stop_requested or 0 < self.max_minutes <= self.minutes_now()

    def _save_or_stop(
        self, stage: str, step: int, state: TrainState, notes: Callable[[], Mapping[str, Any]], must_stop: bool
    ) -> None:
        """A checkpoint, where one is due or it must stop."""
        since_checkpoint = (time.monotonic() - self._checkpointed) / 60
        if self.folder and (must_stop or since_checkpoint >= self.checkpoint_minutes):
            device = state.generator.device.type
            saved = {**notes(), "settings": self.settings, "minutes": self.minutes(), "device": device}
            self._store(stage).save(step, state.files(), saved)
            self._checkpointed = time.monotonic()
        if must_stop:
            self.end()
            raise StopRequested(stage)

    def say(self, line: str) -> None:
        """A line where the progress bars are."""
        if self.progress:
            print(line, file=sys.stderr, flush=True)

    def change_steps(self, total: int) -> None:
        """The stage that runs has fewer or more steps in all than it began with."""
        if self._bar is not None:
            self._bar.change_total(total)

    def end(self) -> None:
        """Close the progress bar of the stage."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def clear(self, stage: str) -> None:
        """The stage's result is written: its checkpoints are no longer needed."""
        if self.folder:
            self._store(stage).clear()

    def _store(self, stage: str) -> CheckpointStore:
        assert self.folder is not None
        return CheckpointStore(self.folder / "checkpoint", stage)

    def _require_same_settings(self, saved: Mapping[str, Any]) -> None:
        """A setting that the program did not have when it wrote the checkpoint cannot differ."""
        differing = sorted(name for name in self.settings.keys() & saved if saved[name] != self.settings[name])
        if not differing:
            return
        name, others = differing[0], len(differing) - 1
        more = f" (and {others} more differ)" if others else ""
        raise RunFolderError(
            f"the run was started with {name} = {saved[name]!r}, now it is {self.settings[name]!r}{more}: resume "
            "with the configuration it was started with (its config.toml), or start a new run with another --out"
        )


def _require_same_device(stage: str, saved: str | None, now: str) -> None:
    """A generator's state fits generators of its own kind of device alone."""
    if saved is not None and saved != now:
        raise RunFolderError(
            f"the checkpoint of stage {stage} was written on {saved}, and its random state fits no {now}: "
            f"resume with --device {saved}, or start the run again on {now} with another --out"
        )

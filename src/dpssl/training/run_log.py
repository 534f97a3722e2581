"""What a run notes while it trains: every number to metrics.jsonl, and the same curves for TensorBoard where asked."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpssl.errors import InputError
from dpssl.run_folder import RunFolder

TENSORBOARD = "tensorboard"  # the package, and the folder of the run that holds the events


def require_tensorboard() -> None:
    if find_spec(TENSORBOARD) is None:
        raise InputError("--track true: needs tensorboard: pip install 'dpssl[track]'")


class RunLog:
    """The lines of metrics.jsonl: a stage, a step and its numbers. Without a path nothing is kept."""

    def __init__(self, path: Path | None, track: bool = False) -> None:
        self.folder = RunFolder(path.parent) if path else None
        self.name = path.name if path else ""
        self.track = track
        self._writers: dict[str, Any] = {}  # of events, by stage

    def write(self, stage: str, step: int, values: Mapping[str, Any]) -> None:
        if self.folder is None:
            return
        self.folder.append_jsonl(self.name, {"stage": stage, "step": step, **values})
        if self.track:
            events = self._events(stage, first_step=0)
            for name, value in values.items():
                events.add_scalar(name, value, step)
            events.flush()

    def rewind(self, stage: str, step: int) -> None:
        """Drop what `stage` logged after `step`: a resumed stage will train it again."""
        if self.folder is not None and self.folder.has(self.name):
            lines = self.folder.read_jsonl(self.name)
            self.folder.write_jsonl(
                self.name, [line for line in lines if line["stage"] != stage or line["step"] <= step]
            )
        if self.folder is not None and self.track:
            self._events(stage, first_step=step + 1)

    def close(self) -> None:
        for events in self._writers.values():
            events.close()
        self._writers.clear()

    def _events(self, stage: str, first_step: int) -> Any:
        """A folder a stage, so that their curves lie over each other; TensorBoard drops what an earlier file has
        from `first_step` on."""
        if stage not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            assert self.folder is not None
            place = self.folder.path(TENSORBOARD) / stage
            purged = first_step if place.is_dir() else None
            self._writers[stage] = SummaryWriter(str(place), purge_step=purged)
        return self._writers[stage]

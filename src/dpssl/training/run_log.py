"""What a run notes while it trains: every number to metrics.jsonl."""

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

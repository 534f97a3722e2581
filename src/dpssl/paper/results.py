"""Results: one JSON file a cell, written whole, and read with suspicion.

A file that is damaged, of another format, or of a run with other settings than the cell has now is named and not
counted. Nothing here trains or imports torch.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpssl import __version__
from dpssl.config import Config, settings_that_matter
from dpssl.errors import RunFolderError
from dpssl.paper.cells import Cell
from dpssl.paper.entries import COUNT, ERROR, Entry
from dpssl.run_folder import RunFolder

FORMAT = 1  # of the files; raise it where an old file would be misread
DONE, FAILED = "done", "failed"
FIELDS: dict[str, type | tuple[type, ...]] = {
    "format": int,
    "dpssl": str,
    "status": str,
    "cell": dict,
    "config": dict,
    "figures": dict,
    "error": (str, type(None)),
    "uses_truth": bool,
    "commit": (str, type(None)),
    "device": (str, type(None)),
    "minutes": (int, float, type(None)),
}


@dataclass(frozen=True)
class Result:
    """What one file says."""

    figures: dict[str, Any]
    error: str | None
    device: str | None
    minutes: float | None
    commit: str | None

    def has(self, cell: Cell) -> bool:
        """Whether the cell is done, to the end model where that is asked for."""
        return self.error is None and (not cell.end_model or self.figures.get("test_accuracy") is not None)


def file_name(cell: Cell) -> str:
    return f"{cell.name}.json"


def write_result(
    folder: RunFolder,
    cell: Cell,
    config: dict[str, Any],
    figures: dict[str, Any],
    *,
    error: str | None = None,
    commit: str | None = None,
) -> None:
    """Write the cell's file: its figures, or why it has none."""
    document = {
        "format": FORMAT,
        "dpssl": __version__,
        "status": DONE if error is None else FAILED,
        "error": error,
        "cell": cell.to_json(),
        "uses_truth": cell.uses_truth,
        "commit": commit,
        "device": figures.get("device"),
        "minutes": figures.get("minutes"),
        "config": config,
        "figures": figures,
    }
    folder.write_json(file_name(cell), document)


def read_results(folder: RunFolder, cells: Iterable[Cell]) -> tuple[dict[str, Result], list[str]]:
    """The results of those cells that have one, by the cells' names, and a line for each file that does not count."""
    found, problems = {}, []
    for cell in cells:
        if not folder.has(file_name(cell)):
            continue
        try:
            found[cell.name] = _read(folder, cell)
        except _NotCounted as problem:
            problems.append(f"{folder.path(file_name(cell))}: {problem}; not counted")
    return found, problems


class _NotCounted(Exception):
    """Why a file is no result of the cell."""


def _read(folder: RunFolder, cell: Cell) -> Result:
    try:
        document = folder.read_json(file_name(cell))
    except RunFolderError:
        raise _NotCounted("is damaged, no JSON document") from None
    if not isinstance(document, dict) or "format" not in document:
        raise _NotCounted("is damaged, it does not say its format")
    if document["format"] != FORMAT:
        raise _NotCounted(f"has format {document['format']!r}, this version of dpssl reads {FORMAT}")
    for name, kind in FIELDS.items():
        if name not in document or not isinstance(document[name], kind):
            raise _NotCounted(f"is damaged, its {name!r} is missing or of another type")
    try:
        other = Cell.from_json(document["cell"])
    except (KeyError, TypeError, ValueError):
        raise _NotCounted("is damaged, its 'cell' is none") from None
    if other.name != cell.name:
        raise _NotCounted(f"holds the cell {other.name}")
    if other.method_settings != cell.method_settings:
        before, now = (", ".join(of.method_settings) or "its defaults" for of in (other, cell))
        raise _NotCounted(f"was made with {before}, which is {now} now")
    if changed := _changed_setting(cell, document["config"]):
        raise _NotCounted(changed)
    if document["status"] == DONE and document["error"] is None:
        return Result(document["figures"], None, document["device"], document["minutes"], document["commit"])
    return Result({}, str(document["error"]), document["device"], document["minutes"], document["commit"])


def _changed_setting(cell: Cell, noted: dict[str, Any]) -> str:
    """The first setting in which the run differs from the cell as it is now. One newer than the run had its default."""
    defaults = settings_that_matter(Config())
    for name, value in cell.settings_in_use().items():
        before = noted.get(name, defaults[name])
        if before != value:
            return f"was made with {name} = {before!r}, which is {value!r} now"
    return ""


@dataclass(frozen=True)
class Measured:
    """An entry's numbers, one a finished cell, as they are shown."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """The sample standard deviation; one run has none."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


def measured(entry: Entry, results: dict[str, Result]) -> Measured:
    """What the finished cells of an entry say; nothing is filled in for the others."""
    values = []
    for cell in entry.cells:
        if cell.name in results and results[cell.name].error is None:
            value = _at(results[cell.name].figures, entry.figure)
            if value is not None:
                values.append(
                    value if entry.shown_as == COUNT else 100 * (1 - value if entry.shown_as == ERROR else value)
                )
    return Measured(tuple(values))


def _at(figures: Any, path: str) -> float | None:
    for name in path.split("."):
        if isinstance(figures, dict):
            figures = figures.get(name)
        elif isinstance(figures, list) and name.isdigit() and int(name) < len(figures):
            figures = figures[int(name)]
        else:
            return None
    return float(figures) if isinstance(figures, int | float) and not isinstance(figures, bool) else None


def made_folder(path: str, flag: str) -> RunFolder:
    """The folder that a flag names, made where it is missing."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{flag} {path}: cannot be made a folder ({error}); choose another") from error
    return RunFolder(Path(path))

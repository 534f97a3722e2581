"""Results: one JSON file a cell, written whole, and read with suspicion.

A file that is damaged, of another format, or of a run with other settings than the cell has now, is named and not
counted. Nothing here trains.
"""

import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpssl import __version__
from dpssl.config import DP_SSL, Config, is_retired, settings_that_matter
from dpssl.errors import InputError, RunFolderError
from dpssl.paper.cells import Cell
from dpssl.paper.entries import COUNT, ERROR, Entry
from dpssl.run_folder import RunFolder

FORMAT = 1  # of the files; raise it where an old file would be misread
DONE, FAILED = "done", "failed"
SHARES = ("accuracy", "precision", "recall", "f1", "coverage")  # figures whose names end so are between 0 and 1
BUDGET = re.compile(r"_(\d+)-steps_seed-(\d+)")  # in the name of a file
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
    dpssl: str
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
        if not folder.path(file_name(cell)).exists():
            continue
        try:
            found[cell.name] = _read(folder, cell)
        except _NotCounted as problem:
            problems.append(f"{folder.path(file_name(cell))}: {problem}; not counted")
    return found, problems


def other_runs(folder: RunFolder, cells: Sequence[Cell]) -> dict[str, int]:
    """Flags with which there are files of the same runs at other budgets or seeds, and of how many, by their names."""
    if not folder.folder.is_dir():
        return {}
    names, budgets = {_without_budget(file_name(cell)) for cell in cells}, {cell.steps for cell in cells}
    seeds = {cell.seed for cell in cells}
    of_steps, of_seeds = Counter[int](), Counter[int]()
    for file in folder.folder.iterdir():
        if (budget := BUDGET.search(file.name)) and _without_budget(file.name) in names:
            steps, seed = map(int, budget.groups())
            if steps not in budgets and seed in seeds:
                of_steps[steps] += 1
            if steps in budgets and seed not in seeds:
                of_seeds[seed] += 1
    found = {f"--steps {steps}": n for steps, n in sorted(of_steps.items())}
    if of_seeds:
        found[f"--seeds {' '.join(map(str, sorted(of_seeds)))}"] = of_seeds.total()
    return found


def _without_budget(name: str) -> str:
    return BUDGET.sub("", name)


class _NotCounted(Exception):
    """Why a file is no result of the cell."""


def _read(folder: RunFolder, cell: Cell) -> Result:
    try:
        document = folder.read_json(file_name(cell))
    except RunFolderError as problem:
        if isinstance(problem.__cause__, OSError) and not folder.path(file_name(cell)).is_dir():
            raise  # a result that may not be read is none to run again
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
    if changed := _changed_setting(cell, document["config"]):
        raise _NotCounted(changed)
    if document["uses_truth"] != cell.uses_truth:
        raise _NotCounted(f"is damaged, it says that it {'uses' if document['uses_truth'] else 'does not use'} truth")
    figures, error = document["figures"], document["error"]
    if document["status"] != (DONE if error is None else FAILED):
        raise _NotCounted(f"is damaged, its status is {document['status']!r} with the error {error!r}")
    if impossible := _impossible_figure(figures):
        raise _NotCounted(f"is damaged, its {impossible}")
    return Result(
        figures if error is None else {},
        error,
        document["device"],
        document["minutes"],
        document["dpssl"],
        document["commit"],
    )


def _changed_setting(cell: Cell, noted: dict[str, Any]) -> str:
    """The first setting in which the run differs from the cell as it is now. One newer than the run had its default."""
    defaults = settings_that_matter(Config())
    for name, value in noted.items():
        if name not in defaults and not is_retired(name, value):
            return f"was made with {name} = {value!r}, which this version of dpssl does not have"
    for name, value in cell.settings_in_use().items():
        before = noted.get(name, defaults[name])
        if before != value:
            return f"was made with {name} = {before!r}, which is {value!r} now"
    of_method = noted.get("method_settings", [])
    if not isinstance(of_method, list) or not all(isinstance(text, str) for text in of_method):
        return f"is damaged, its method_settings are {of_method!r}"
    if cell.method == DP_SSL:
        return ""
    from dpssl.baselines.registry import changed_setting  # it imports torch

    return changed_setting(cell.method, of_method, cell.method_settings)


def _impossible_figure(figures: Any, name: str = "figures") -> str:
    """The first figure that no run can have: what is not finite, or a share that is none."""
    if isinstance(figures, dict | list):
        inner = figures.items() if isinstance(figures, dict) else ((name, value) for value in figures)
        return next(filter(None, (_impossible_figure(value, str(key)) for key, value in inner)), "")
    is_number = isinstance(figures, int | float) and not isinstance(figures, bool)
    if is_number and not math.isfinite(figures):
        return f"{name} is {figures}"
    if name.endswith(SHARES) and figures is not None and not (is_number and 0 <= figures <= 1):
        return f"{name} is {figures!r}, no share between 0 and 1"
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
    values = (_number_of(cell, entry, results) for cell in entry.cells)
    return Measured(tuple(value for value in values if value is not None))


def measured_cells(entry: Entry, results: dict[str, Result]) -> list[Cell]:
    """Those cells of an entry that its number is made of."""
    return [cell for cell in entry.cells if _number_of(cell, entry, results) is not None]


def _number_of(cell: Cell, entry: Entry, results: dict[str, Result]) -> float | None:
    """The cell's own number, as the entry shows it."""
    if cell.name not in results or results[cell.name].error is not None:
        return None
    value = _at(results[cell.name].figures, entry.figure)
    if value is None or entry.shown_as == COUNT:
        return value
    return 100 * (1 - value if entry.shown_as == ERROR else value)


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
    """The folder that a flag names, made where it is missing, to write to."""
    if not path:
        raise InputError(f"{flag}: name a folder")
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{flag} {path}: cannot be made a folder ({error}); choose another") from error
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise RunFolderError(f"{flag} {path}: cannot be read and written; check its permissions, or choose another")
    return RunFolder(Path(path))


def folder_of_results(path: str, *, may_be_missing: bool) -> RunFolder:
    """The folder that --results names, to read."""
    folder = Path(path)
    try:
        is_folder, is_there = folder.is_dir(), folder.exists()
    except PermissionError:  # of a folder above it
        is_folder, is_there = True, True
    if not path or (not is_folder and (is_there or not may_be_missing)):
        raise InputError(f"--results {path or repr(path)}: no such folder")
    if is_there and not os.access(folder, os.R_OK | os.X_OK):
        raise RunFolderError(f"--results {path}: cannot be read; check its permissions")
    return RunFolder(folder)

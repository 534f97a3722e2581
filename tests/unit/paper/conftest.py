"""A small table, and results for its cells, without training anything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpssl.config import settings_that_matter
from dpssl.paper.cells import Cell
from dpssl.paper.entries import Entry, Table
from dpssl.paper.plans import make_plan
from dpssl.paper.results import write_result
from dpssl.run_folder import RunFolder


@pytest.fixture
def cells() -> list[Cell]:
    return [Cell("digits", "digits", 40, "fixmatch", seed, 8) for seed in (1, 2, 3)]


@pytest.fixture
def small_table(cells: list[Cell]) -> Table:
    others = tuple(Cell("digits", "digits", 40, "uda", seed, 8) for seed in (1, 2, 3))
    entries = (
        Entry("Π_1 & co", "40 | labels", tuple(cells), "test_accuracy", paper="6.54±0.98", x=40),
        Entry("Π_1 & co", "250", tuple(cells), "n_empty_sets", "count", x=250),
        Entry("other", "40 | labels", others, "test_accuracy", paper="5.07±0.65", x=40),
    )
    return Table("table9", "Table 9: 100% made up", entries, ("A note.",), make_plan("small", 8))


@pytest.fixture
def write_done(tmp_path: Path) -> Callable[..., RunFolder]:
    """Writes a result of a cell, with figures and with fields of the document replaced."""
    folder = RunFolder(tmp_path / "cells")

    def write(cell: Cell, figures: dict[str, Any] | None = None, replaced: dict[str, Any] | None = None) -> RunFolder:
        known = {"test_accuracy": 0.9, "annotation_accuracy": 0.8, "minutes": 0.5, "device": "cpu, 1 thread"}
        write_result(folder, cell, settings_that_matter(cell.config()), known | (figures or {}), commit="abc")
        name = f"{cell.name}.json"
        if replaced:
            folder.write_json(name, folder.read_json(name) | replaced)
        return folder

    return write

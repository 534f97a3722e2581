"""What a table or figure is made of: entries, each a number of its cells and what the paper prints there."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from dpssl.config import DP_SSL
from dpssl.paper.cells import AS_PRINTED, Cell, each_once
from dpssl.paper.plans import CHOSEN_WITH_TRUTH, Plan, budget

ERROR, PERCENT, COUNT = "error", "percent", "count"  # how a number of a run is shown: 100 (1 - x), 100 x, x


@dataclass(frozen=True)
class Entry:
    """One place in a table: a number of each of its cells, and what the paper prints there."""

    row: str
    column: str
    cells: tuple[Cell, ...]  # one a seed
    figure: str  # where in a result's figures, names joined by dots
    shown_as: str = ERROR
    paper: str = ""
    statistic: str = "mean"  # and standard deviation; or "range": least, median and greatest
    x: float | None = None  # its place on a line, in a figure
    borrowed: bool = False  # the cells are another column's, whose number holds for this one too


@dataclass(frozen=True)
class Table:
    """A table, or a figure with the numbers it draws."""

    name: str
    title: str
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]
    plan: Plan
    plot: str = "dots"  # or "lines" or "panels" over x, "bars", "grid"
    x_label: str = ""
    y_label: str = "error (%)"
    emphasis: str = ""  # the row that stands out among lines
    row_notes: tuple[tuple[str, str], ...] = ()  # (row, note): for where the row is shown

    def of(self, cells: Sequence[Cell]) -> Self:
        """The entries that some of these cells belong to, with these cells alone; no column that only borrows."""
        kept = {cell.name for cell in cells}
        narrowed = (
            dataclasses.replace(entry, cells=tuple(cell for cell in entry.cells if cell.name in kept))
            for entry in self.entries
        )
        found = [entry for entry in narrowed if entry.cells]
        columns = {entry.column for entry in found if not entry.borrowed}
        return dataclasses.replace(self, entries=tuple(entry for entry in found if entry.column in columns))

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(entry.row for entry in self.entries))

    def of_column(self, column: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.column == column]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(entry.column for entry in self.entries))

    @property
    def budget(self) -> str:
        """What each cell may spend, in words."""
        return budget(self.plan, self.cells)

    @property
    def disclosures(self) -> list[str]:
        """Which of DP-SSL's settings here owe something to the truth."""
        sets = {cell.data for cell in self.cells if cell.method == DP_SSL and cell.variant != AS_PRINTED}
        return [sentence for data, sentence in CHOSEN_WITH_TRUTH.items() if data in sets]

    @property
    def all_notes(self) -> list[str]:
        """What holds for the whole table, then for rows that are shown, then what took part in which choice."""
        of_rows = (note for row, note in self.row_notes if row in self.rows)
        return [*self.notes, *dict.fromkeys(of_rows), *self.disclosures]

    @property
    def cells(self) -> list[Cell]:
        return each_once(cell for entry in self.entries for cell in entry.cells)

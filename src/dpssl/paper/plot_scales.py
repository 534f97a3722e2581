"""How the numbers of a table are compared in its picture: by seeds that all points share, with bars that end where
numbers must, on scales that one far number does not take for itself, and in which words that is said. Nothing here
draws.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from dpssl.config import load_preset
from dpssl.paper.entries import COUNT, ERROR, Entry, Table
from dpssl.paper.numbers import printed_specialists
from dpssl.paper.plans import SCALES, SET_TITLES
from dpssl.paper.plot_values import LOWEST_SHARE, Spread, ours, papers
from dpssl.paper.results import Result, measured, measured_cells

LARGE_RATIO = 5.0  # of two numbers of one panel; on a linear axis the small ones would be one spot


def as_drawn(table: Table, results: dict[str, Result]) -> Table:
    """What of the table its picture shows."""
    if table.plot == "dots":
        return _with_numbers(table, results)
    return _of_common_seeds(table, results) if table.plot in ("panels", "grid") else table


def _with_numbers(table: Table, results: dict[str, Result]) -> Table:
    """The columns with a number, ours or the paper's; all of them where none has one."""
    kept = [column for column in table.columns if marks(table.of_column(column), results)] or table.columns
    return dataclasses.replace(table, entries=tuple(entry for entry in table.entries if entry.column in kept))


def _of_common_seeds(table: Table, results: dict[str, Result]) -> Table:
    """Those seeds alone that every point has, for points that are read as one curve or one grid.

    A point with more seeds than its neighbours looks like a minimum that is only another choice of seeds. Where no seed
    is common to all, each keeps its own.
    """
    of_points = _seeds_of_points(table, results)
    common = set.intersection(*of_points) if of_points else set()
    if not common:
        return table
    entries = (
        dataclasses.replace(entry, cells=tuple(cell for cell in entry.cells if cell.seed in common))
        for entry in table.entries
    )
    return dataclasses.replace(table, entries=tuple(entries))


def _seeds_of_points(table: Table, results: dict[str, Result]) -> list[set[int]]:
    """The seeds of each entry that has any."""
    return [seeds for entry in table.entries if (seeds := _seeds(entry, results))]


def _seeds(entry: Entry, results: dict[str, Result]) -> set[int]:
    """Those that the entry has a number of."""
    return {cell.seed for cell in measured_cells(entry, results)}


def our_mark(entry: Entry, results: dict[str, Result]) -> Spread | None:
    """What we measured, with a bar that ends where numbers must."""
    return _within(entry, ours(entry, results))


def papers_mark(entry: Entry) -> Spread | None:
    """What the paper prints, with a bar that ends where numbers must."""
    return _within(entry, papers(entry))


def marks(entries: Iterable[Entry], results: dict[str, Result]) -> list[Spread]:
    """All that is drawn of these entries."""
    return [mark for entry in entries for mark in (our_mark(entry, results), papers_mark(entry)) if mark]


def _within(entry: Entry, spread: Spread | None) -> Spread | None:
    """A deviation reaches past 0 or 100 %, where no run can be."""
    if spread is None or spread.ends is None:
        return spread
    return Spread(spread.center, (max(spread.ends[0], 0.0), min(spread.ends[1], highest(entry))))


def highest(entry: Entry) -> float:
    """What a number there can be at most."""
    return math.inf if entry.shown_as == COUNT else 100.0


def number_text(entry: Entry, number: float) -> str:
    """With the decimals of the table as text."""
    return f"{number:.{1 if entry.shown_as == COUNT else 2}f}"


def is_logarithmic(table: Table, results: dict[str, Result]) -> bool:
    """Whether the panels of errors need a logarithmic scale; if one does, all have it, so that they read alike."""
    if any(entry.shown_as != ERROR for entry in table.entries):
        return False
    for column in table.columns:
        found = marks(table.of_column(column), results)
        centers = [mark.center for mark in found if mark.center]
        if centers and max(centers) >= LARGE_RATIO * min(centers):
            return True
    return False


def start_of_log_axis(spreads: Sequence[Spread]) -> tuple[float, float | None]:
    """Where a logarithmic axis starts, and where 0 stands on it if a number is 0.

    A bar that ends just above 0 would stretch it without bound, so that such a bar leaves the axis.
    """
    centers = [spread.center for spread in spreads if spread.center is not None]
    smallest = min((center for center in centers if center > 0), default=1.0)
    lowest = min([smallest, *(spread.ends[0] for spread in spreads if spread.ends)])
    start = max(lowest, LOWEST_SHARE * smallest)
    zero = start / 2 if 0 in centers else None
    return 0.8 * (zero or start), zero


def colour_scale(values: Sequence[float]) -> tuple[float, float]:
    """Least and greatest of a scale of colours. A value far below the tenth percentile has no place on it, since it
    would leave all others one colour: far is farther than the ninetieth is above.
    """
    if len(values) < 2:
        return values[0], values[0]
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    fence = tenths[0] - (tenths[-1] - tenths[0])
    return min(value for value in values if value >= fence), max(values)


def by_last_error(table: Table, results: dict[str, Result]) -> list[str]:
    """The rows that have numbers, the highest first where the lines end; those with the paper's numbers alone last."""
    last: dict[str, tuple[bool, float]] = {}
    for entry in sorted(table.entries, key=lambda entry: entry.x or 0.0):
        measure, printed = our_mark(entry, results), papers_mark(entry)
        if measure is not None and measure.center is not None:
            last[entry.row] = (False, -measure.center)
        elif printed is not None and printed.center is not None and last.get(entry.row, (True,))[0]:
            last[entry.row] = (True, -printed.center)
    return sorted(last, key=last.__getitem__)


def remarks(whole: Table, table: Table, results: dict[str, Result]) -> list[str]:
    """Sentences on how the numbers of the whole table were chosen, cut and scaled for its picture."""
    of_plot = {
        "dots": _of_dots,
        "lines": _of_lines,
        "panels": lambda table, results: [],
        "bars": _of_bars,
        "grid": _of_grid,
    }[table.plot]
    left_out = _on_left_out(whole, table)
    return [*left_out, *_on_seeds(whole, table, results), *of_plot(table, results), *_on_cut_bars(table, results)]


def _on_left_out(whole: Table, table: Table) -> Iterator[str]:
    if columns := [column for column in whole.columns if column not in table.columns]:
        yield f"Left out, since nothing of it was run: {'; '.join(columns)}."


def _on_seeds(whole: Table, table: Table, results: dict[str, Result]) -> Iterator[str]:
    if table.plot not in ("panels", "grid"):
        return
    of_points = _seeds_of_points(table, results)
    dropped = set().union(*(_seeds(entry, results) for entry in whole.entries)).difference(*of_points)
    noun = "Seeds" if of_points and len(of_points[0]) > 1 else "Seed"
    if any(seeds != of_points[0] for seeds in of_points):
        yield "No seed is common to all numbers, so that each has its own: they are not to be compared."
    elif dropped:
        yield f"{noun} {_listed(of_points[0])}, which all numbers have; {_listed(dropped)}, which some have, left out."
    elif of_points:
        yield f"{noun} {_listed(of_points[0])}."


def _listed(numbers: Iterable[int]) -> str:
    *others, last = map(str, sorted(numbers))
    return f"{', '.join(others)} and {last}" if others else last


def _of_dots(table: Table, results: dict[str, Result]) -> Iterator[str]:
    if is_logarithmic(table, results):
        drawn = [panel for column in table.columns if (panel := marks(table.of_column(column), results))]
        leaves = any(mark.ends and mark.ends[0] < start_of_log_axis(panel)[0] for panel in drawn for mark in panel)
        yield "Logarithmic scale" + ("; a bar that leaves a panel goes on to the left." if leaves else ".")


def _of_lines(table: Table, results: dict[str, Result]) -> Iterator[str]:
    if len(by_last_error(table, results)) > 1:
        yield "On grey, side by side: the methods at one number of labels, in the order of their last errors."


def _of_bars(table: Table, results: dict[str, Result]) -> Iterator[str]:
    """Equal bars look like a mistake; the paper's, which differ, are of another set at the small scales."""
    found = [mark for entry in table.entries if (mark := our_mark(entry, results))]
    every = {number for mark in found for number in (mark.center, *(mark.ends or ()))}
    if len(found) > 1 and len(every) == 1:
        yield f"Every class has {every.pop():g} in every run."
    if table.name != "fig-specialists" or not found or any(map(papers, table.entries)):
        return
    scale = SCALES["paper"]
    numbers = [text for name in scale.class_names if (text := printed_specialists(scale.main_set, name))]
    n_lfs, papers_n_lfs = (load_preset(one.presets[one.main_set]).labeling.n_lfs for one in (table.plan.scale, scale))
    yield (
        f"Of K = {n_lfs} LFs; of K = {papers_n_lfs} on {SET_TITLES[scale.main_set]} the paper's text names "
        f"{min(numbers, key=float)} to {max(numbers, key=float)}, for {len(numbers)} of its classes."
    )


def _of_grid(table: Table, results: dict[str, Result]) -> Iterator[str]:
    means = [found.mean for entry in table.entries if (found := measured(entry, results)).values]
    if means and min(means) < colour_scale(means)[0]:
        yield "Orange with an arrow: below the scale of colours."


def _on_cut_bars(table: Table, results: dict[str, Result]) -> Iterator[str]:
    if table.plot in ("lines", "grid"):  # the one has a foot of its own, the other no bars
        return
    drawn = [(entry, ours(entry, results)) for entry in table.entries]
    if table.plot == "dots":
        drawn += [(entry, papers(entry)) for entry in table.entries]
    barred = [(highest(entry), spread.ends) for entry, spread in drawn if spread and spread.ends]
    is_low = any(ends[0] < 0 for _, ends in barred) and not (table.plot == "dots" and is_logarithmic(table, results))
    is_high = any(ends[1] > most for most, ends in barred)
    if is_low or is_high:
        ends = [end for end, is_met in (("0", is_low), ("100 %", is_high)) if is_met]
        yield f"Bars are cut at {' and at '.join(ends)}, past which nothing can be."

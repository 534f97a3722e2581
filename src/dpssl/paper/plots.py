"""A table or figure drawn with matplotlib -> PNG and SVG: ours filled with a bar or band of one standard deviation, the
paper's hollow beside it, a grid as shaded squares with its numbers; in small print how many runs and steps they took.
What was not run is not drawn. Pictures over x are plot_lines.py.
"""

import textwrap
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpssl.errors import InputError, RunFolderError
from dpssl.paper.entries import Entry, Table
from dpssl.paper.plot_lines import ASIDE, EMPHASIS, OURS, PAPERS, draw_bar, draw_lines, draw_panels
from dpssl.paper.plot_scales import (
    as_drawn,
    colour_scale,
    highest,
    is_logarithmic,
    marks,
    number_text,
    our_mark,
    papers_mark,
    remarks,
    start_of_log_axis,
)
from dpssl.paper.plot_values import Spread, footer, ours, papers
from dpssl.paper.results import Result, measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BESIDE = 3  # panels in one row
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # no line of the grid through words
BELOW_SCALE = "#fbd5b5"  # no shade of the scale's blue, and lighter than all of them
LOG_TICKS = ((1, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))  # of a decade; the first that have room
TICKS_APART = 0.085  # of an axis, so that the numbers below it do not touch
ROOM = 0.28  # to the right of the last dot or bar, for its number, as a share of what lies before
OnAxis = Callable[[Spread], Spread]  # where the parts of a mark lie on an axis


def write_plots(table: Table, results: dict[str, Result], folder: Path, name: str) -> list[Path]:
    """Draw the table -> `name`.png and `name`.svg in the folder."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InputError("--render: plots need matplotlib; pip install matplotlib") from None
    matplotlib.use("agg")
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "dpssl", "text.parse_math": False}
    with matplotlib.rc_context(settings):
        figure = draw(table, results)
        written = []
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):  # equal numbers give equal bytes
            path = folder / f"{name}.{kind}"
            try:
                figure.savefig(path, dpi=150, metadata=metadata)
            except OSError as error:
                raise RunFolderError(f"{path}: cannot be written ({error}); choose another --out") from error
            written.append(path)
    return written


def draw(table: Table, results: dict[str, Result]) -> "Figure":
    """The table as a figure of matplotlib, with its title above and the footer below."""
    from matplotlib.figure import Figure

    whole, table = table, as_drawn(table, results)
    draw_on = {"dots": _dots, "lines": draw_lines, "panels": draw_panels, "bars": _bars, "grid": _grid}[table.plot]
    n_panels = len(table.columns) if table.plot in ("dots", "panels") else 1
    n_beside = 2 if n_panels == 4 else min(n_panels, MOST_BESIDE)
    n_high = -(-n_panels // n_beside)
    width = 2.2 + 2.4 * n_beside if n_panels > 1 else 7.2
    runs, *budgets = footer(table, results)
    sentences = [runs, *remarks(whole, table, results), *budgets]
    words = [line for sentence in sentences for line in textwrap.wrap(sentence, round(17 * width))]
    row_height = 0.28 if any(map(papers, table.entries)) else 0.23
    height = 0.6 + n_high * (0.6 + row_height * len(table.rows)) if table.plot == "dots" else 4.2
    figure = Figure(figsize=(width, height + 0.14 * len(words)), layout="constrained")
    places = list(figure.subplots(n_high, n_beside, squeeze=False, sharey=table.plot in ("dots", "panels")).flat)
    axes = places[:n_panels]
    for spare in places[n_panels:]:
        spare.remove()
    draw_on(table, results, axes)
    for index, panel in enumerate(axes):
        entries = table.of_column(table.columns[index]) if n_panels > 1 else table.entries
        if not marks(entries, results):
            _say_not_run(panel, has_scale=table.plot not in ("bars", "grid"))
    if table.plot in ("dots", "panels", "bars"):
        _legend(table, results, figure)
    figure.suptitle(table.title, fontsize=11)
    figure.supxlabel("\n".join(words), x=0.01, ha="left", fontsize=7, color=ASIDE)
    return figure


def _say_not_run(panel: "Axes", *, has_scale: bool) -> None:
    """Words in place of numbers, and no scale where there is nothing to read on it."""
    if has_scale:
        panel.set_xticks([])
    panel.text(0.5, 0.5, "not run", transform=panel.transAxes, ha="center", fontsize=8, color=ASIDE)


def _dots(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A panel a column, a line a row; where the paper has numbers, ours is above and the paper's below the line."""
    places = {row: place for place, row in enumerate(table.rows)}
    beside = 0.22 if any(papers(entry) for entry in table.entries) else 0.0
    is_log = is_logarithmic(table, results)
    for panel, column in zip(axes, table.columns, strict=True):
        entries = table.of_column(column)
        panel.set_title(column, fontsize=8)
        panel.set_yticks(list(places.values()), list(places), fontsize=8)
        panel.set_ylim(len(places) - 0.5, -0.5)
        panel.grid(alpha=0.3)
        panel.tick_params(labelsize=7.5)
        if not marks(entries, results):
            continue
        on_axis = _log_scale(panel, entries, results) if is_log else _linear_scale(panel, entries, results)
        for entry in entries:
            _dot(panel, entry, our_mark(entry, results), on_axis, places[entry.row] - beside, OURS, OURS)
            _dot(panel, entry, papers_mark(entry), on_axis, places[entry.row] + beside, PAPERS, "white")
        for row, place in places.items():
            of_row = [entry for entry in entries if entry.row == row]
            if not marks(of_row, results):
                sideways, text = panel.get_yaxis_transform(), "not run" if of_row else "no such number"
                panel.text(0.02, place, text, transform=sideways, va="center", fontsize=6.5, color=ASIDE, bbox=CLEAR)


def _dot(
    panel: "Axes", entry: Entry, spread: Spread | None, on_axis: OnAxis, place: float, colour: str, filling: str
) -> None:
    """A dot with its bar, and its number to their right; or a bar alone."""
    if spread is None:
        return
    drawn = on_axis(spread)
    draw_bar(panel, drawn, place, colour, upright=False)
    if spread.center is not None and drawn.center is not None:
        panel.plot(drawn.center, place, "o", color=colour, markersize=4, markerfacecolor=filling)
        last = max(drawn.center, drawn.ends[1] if drawn.ends else drawn.center)
        look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 6.5, "color": colour}
        panel.annotate(number_text(entry, spread.center), (last, place), (4, 0), **look)


def _linear_scale(panel: "Axes", entries: list[Entry], results: dict[str, Result]) -> OnAxis:
    """Room for a number to the right of the last bar, and ticks only where a number can be."""
    from matplotlib.ticker import MaxNLocator

    reached = _reach(entries, results)
    least, most = min(reached), max(reached)
    span = most - least or 1.0
    left, right = least - 0.07 * span, most + ROOM * span
    ticks = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(left, right)
    panel.set_xticks([tick for tick in ticks if max(left, 0) <= tick <= min(right, *map(highest, entries))])
    panel.set_xlim(left, right)
    return lambda spread: spread


def _log_scale(panel: "Axes", entries: list[Entry], results: dict[str, Result]) -> OnAxis:
    """The same on a logarithmic axis, with a place for 0 if a number is 0; what lies before the axis leaves it."""
    from matplotlib.ticker import LogLocator

    panel.set_xscale("log")
    start, zero = start_of_log_axis(marks(entries, results))
    most = max(*_reach(entries, results), 2 * start)  # all numbers may be 0
    right = most * (most / start) ** ROOM
    nearest = (right / start) ** TICKS_APART
    subs = next(subs for subs in LOG_TICKS if min(b / a for a, b in pairwise((*subs, 10))) >= nearest)
    first, last = nearest * zero if zero else start, min(right, 100.0)
    ticks = [tick for tick in LogLocator(subs=subs).tick_values(first, last) if first < tick <= last]
    at_zero = [] if zero is None else [zero]
    panel.set_xticks([*at_zero, *ticks], [*("0" for _ in at_zero), *(f"{tick:g}" for tick in ticks)])
    panel.minorticks_off()
    panel.set_xlim(start, right)
    beyond = start / 2

    def on_axis(spread: Spread) -> Spread:
        center = zero if spread.center == 0 else spread.center
        return Spread(center, spread.ends and (max(spread.ends[0], beyond), max(spread.ends[1], beyond)))

    return on_axis


def _reach(entries: list[Entry], results: dict[str, Result]) -> list[float]:
    """All places that dots and the ends of bars take."""
    drawn = marks(entries, results)
    return [value for mark in drawn for value in (mark.center, *(mark.ends or ())) if value is not None]


def _bars(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    panel = axes[0]
    for place, entry in enumerate(table.entries):
        if (spread := our_mark(entry, results)) and spread.center is not None:
            panel.bar(place, spread.center, color=OURS)
            draw_bar(panel, spread, place, EMPHASIS, upright=True)
        if (printed := papers_mark(entry)) and printed.center is not None:
            panel.plot(place, printed.center, "o", color=PAPERS, markersize=4, markerfacecolor="none")
    panel.axhline(0, color=EMPHASIS, linewidth=0.8)  # heights are compared from 0, also where the paper's stand alone
    panel.set_xlim(-0.6, len(table.entries) - 0.4)
    panel.set_xticks(range(len(table.entries)), table.rows, rotation=45, fontsize=8)
    panel.set_xlabel(table.x_label)
    panel.set_ylabel(table.y_label)


def _grid(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A square a row and column, the darker the higher: our mean, its standard deviation, in brackets the paper's."""
    panel, rows, columns = axes[0], table.rows, table.columns
    found = {(entry.row, entry.column): measured(entry, results) for entry in table.entries}
    means = {place: one.mean for place, one in found.items() if one.values}
    least = _shade(panel, table, means) if means else 0.0
    for entry in table.entries:
        place, one = (columns.index(entry.column), rows.index(entry.row)), found[entry.row, entry.column]
        lines = [(number_text(entry, one.mean), 8.0)] if one.values else []
        if one.values and one.mean < least:
            lines = [(f"↓ {lines[0][0]}", 8.0)]
        lines += [(f"±{number_text(entry, one.std)}", 6.5)] if one.std is not None else []
        lines += [(f"[{entry.paper}]", 8.0)] if entry.paper else []
        if not lines and marks(table.entries, results):
            lines = [("not run", 6.5)]
        for index, (text, size) in enumerate(lines):
            points_up = 10.0 * ((len(lines) - 1) / 2 - index)
            panel.annotate(
                text, place, (0, points_up), textcoords="offset points", ha="center", va="center", fontsize=size
            )
    panel.set_xticks(range(len(columns)), columns, fontsize=8)
    panel.set_yticks(range(len(rows)), rows, fontsize=8)
    panel.set_xlim(-0.5, len(columns) - 0.5)
    panel.set_ylim(len(rows) - 0.5, -0.5)


def _shade(panel: "Axes", table: Table, means: dict[tuple[str, str], float]) -> float:
    """Colours with a bar that explains them -> where their scale begins.

    The shades end where black print is still legible and begin where they are told from white, what was not run.
    """
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    least, most = colour_scale(list(means.values()))
    shades = LinearSegmentedColormap.from_list("shades", colormaps["Blues"]([0.12, 0.24, 0.36, 0.48, 0.6]))
    room = 0.0 if least < most else 0.5  # of one number alone
    image = panel.imshow(
        [[means.get((row, column), float("nan")) for column in table.columns] for row in table.rows],
        cmap=shades.with_extremes(under=BELOW_SCALE), vmin=least - room, vmax=most + room, aspect="auto",
    )  # fmt: skip
    is_cut = min(means.values()) < least
    bar = panel.figure.colorbar(image, ax=panel, extend="min" if is_cut else "neither", pad=0.02, aspect=30)
    bar.set_label("mean (%)", fontsize=8)
    bar.ax.tick_params(labelsize=7.5)
    return least


def _legend(table: Table, results: dict[str, Result], figure: "Figure") -> None:
    """Where the paper's numbers are drawn, which are whose; beside the panels, so that it hides nothing."""
    from matplotlib.lines import Line2D

    if not any(papers(entry) for entry in table.entries):
        return
    look: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 4}
    handles = [Line2D([], [], color=PAPERS, markerfacecolor="none", label="paper", **look)]
    if any(ours(entry, results) for entry in table.entries):
        handles.insert(0, Line2D([], [], color=OURS, label="ours", **look))
    figure.legend(handles=handles, fontsize=7, loc="outside right upper", frameon=False)

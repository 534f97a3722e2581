"""A table or figure drawn with matplotlib -> PNG and SVG: ours filled with a bar or band of one standard deviation, the
paper's hollow beside it, a grid as shaded squares with its numbers; in small print how many runs and steps they took.
What was not run is not drawn.
"""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpssl.errors import InputError, RunFolderError
from dpssl.paper.entries import Entry, Table
from dpssl.paper.plot_values import Spread, default_of_panels, foot_of_log_axis, footer, ours, papers
from dpssl.paper.results import Result, measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, PAPERS, DEFAULT_LINE, EMPHASIS, ASIDE = "#0072b2", "#d55e00", "#c00000", "#000000", "#595959"
# With lines and markers of their own, as colours alone do not tell twelve lines apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
STYLES = (("-", "o"), ("--", "s"), (":", "^"))


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

    draw_on = {"dots": _dots, "lines": _lines, "panels": _panels, "bars": _bars, "grid": _grid}[table.plot]
    n_panels = len(table.columns) if table.plot in ("dots", "panels") else 1
    width = 2.2 + 2.4 * n_panels if n_panels > 1 else 7.2
    words = [line for sentence in footer(table, results) for line in textwrap.wrap(sentence, round(17 * width))]
    height = (1.2 + 0.28 * len(table.rows) if table.plot == "dots" else 4.2) + 0.14 * len(words)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, n_panels, squeeze=False, sharey=table.plot in ("dots", "panels"))[0]
    draw_on(table, results, list(axes))
    for index, panel in enumerate(axes):
        entries = _of_column(table, table.columns[index]) if n_panels > 1 else table.entries
        if not any(ours(entry, results) or papers(entry) for entry in entries):
            _say_not_run(panel, has_scale=table.plot not in ("bars", "grid"))
    figure.suptitle(table.title, fontsize=11)
    figure.supxlabel("\n".join(words), x=0.01, ha="left", fontsize=7, color=ASIDE)
    return figure


def _of_column(table: Table, column: str) -> list[Entry]:
    return [entry for entry in table.entries if entry.column == column]


def _say_not_run(panel: "Axes", *, has_scale: bool) -> None:
    """Words in place of numbers, and no scale where there is nothing to read on it."""
    if has_scale:
        panel.set_xticks([])
    panel.text(0.5, 0.5, "not run", transform=panel.transAxes, ha="center", fontsize=8, color=ASIDE)


def _dots(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A panel a column, a line a row; where the paper has numbers, ours is above and the paper's below the line."""
    places = {row: place for place, row in enumerate(table.rows)}
    beside = 0.12 if any(papers(entry) for entry in table.entries) else 0.0
    for panel, column in zip(axes, table.columns, strict=True):
        panel.set_title(column, fontsize=8)
        panel.set_yticks(list(places.values()), list(places), fontsize=8)
        panel.set_ylim(len(places) - 0.5, -0.5)
        panel.grid(alpha=0.3)
        panel.tick_params(labelsize=8)
        for entry in _of_column(table, column):
            _dot(panel, ours(entry, results), places[entry.row] - beside, OURS, OURS)
            _dot(panel, papers(entry), places[entry.row] + beside, PAPERS, "white")
    _legend(table, results, axes[-1])


def _dot(panel: "Axes", spread: Spread | None, place: float, colour: str, filling: str) -> None:
    """A dot with its bar, or either alone."""
    if spread is None:
        return
    _bar(panel, spread, place, colour, upright=False)
    if spread.center is not None:
        panel.plot(spread.center, place, "o", color=colour, markersize=4, markerfacecolor=filling)


def _bar(panel: "Axes", spread: Spread, place: float, colour: str, *, upright: bool) -> None:
    """A bar from end to end, if there is one; not about the number, which need not be in the middle."""
    if spread.ends is None:
        return
    middle, half = (spread.ends[0] + spread.ends[1]) / 2, (spread.ends[1] - spread.ends[0]) / 2
    look: dict[str, Any] = {"fmt": "none", "ecolor": colour, "capsize": 2}
    if upright:
        panel.errorbar(place, middle, yerr=half, **look)
    else:
        panel.errorbar(middle, place, xerr=half, **look)


def _lines(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A line a row over x, with a band of one standard deviation; the paper's points hollow in the same colour.

    Both scales are logarithmic, since methods differ by factors. The one that matters here is black, above all others.
    """
    panel, foot = axes[0], foot_of_log_axis(table, results)
    for index, row in enumerate(table.rows):
        entries = [entry for entry in table.entries if entry.row == row]
        colour, (style, marker) = COLOURS[index % len(COLOURS)], STYLES[index // len(COLOURS) % len(STYLES)]
        weight, above = 1.3, 2.0
        if row == table.emphasis:
            colour, style, marker, weight, above = EMPHASIS, "-", "D", 2.6, 4.0
        points = _points((entry.x, ours(entry, results)) for entry in entries)
        if points:
            xs, *drawn = zip(*points, strict=True)
            centers, lows, highs = ([max(value, foot or value) for value in values] for values in drawn)
            panel.plot(
                xs, centers, style, marker=marker, markersize=4, color=colour, label=row, linewidth=weight, zorder=above
            )
            panel.fill_between(xs, lows, highs, color=colour, alpha=0.1, linewidth=0)
        printed = _points((entry.x, papers(entry)) for entry in entries)
        if printed:
            label = None if points else f"{row} (paper)"
            hollow: dict[str, Any] = {"markersize": 5, "markerfacecolor": "none", "linestyle": ""}
            xs, numbers, *_ = zip(*printed, strict=True)
            panel.plot(xs, numbers, marker=marker, color=colour, label=label, **hollow)
    _log_axes(panel, sorted({entry.x for entry in table.entries if entry.x is not None}), foot)
    panel.set_xlabel(table.x_label)
    panel.set_ylabel(table.y_label)
    panel.grid(alpha=0.3)
    if panel.get_legend_handles_labels()[0]:
        panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _points(found: Iterable[tuple[float | None, Spread | None]]) -> list[tuple[float, float, float, float]]:
    """Place, number, and the ends of its band, which are the number itself where there is none."""
    return [
        (x, spread.center, *(spread.ends or (spread.center, spread.center)))
        for x, spread in found
        if x is not None and spread is not None and spread.center is not None
    ]


def _log_axes(panel: "Axes", xs: list[float], foot: float | None) -> None:
    """Logarithmic scales with their ticks; where there is a foot, 0 stands there."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    if foot is not None:
        panel.set_ylim(bottom=0.85 * foot)
        ticks = [tick for tick in panel.get_yticks() if 1.4 * foot < tick < panel.get_ylim()[1]]
        panel.set_yticks([foot, *ticks], ["0", *(f"{tick:g}" for tick in ticks)])
    panel.set_xticks(xs, [f"{x:g}" for x in xs])
    panel.minorticks_off()


def _panels(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A panel a column over x, with the entry that all panels share as a dashed line."""
    default = default_of_panels(table, results)
    for panel, column in zip(axes, table.columns, strict=True):
        entries = _of_column(table, column)
        for entry in entries:
            if entry.x is not None and (spread := ours(entry, results)):
                _bar(panel, spread, entry.x, OURS, upright=True)
        if points := _points((entry.x, ours(entry, results)) for entry in entries):
            xs, centers, *_ = zip(*points, strict=True)
            panel.plot(xs, centers, "o-", color=OURS, markersize=4)
        if printed := _points((entry.x, papers(entry)) for entry in entries):
            xs, centers, *_ = zip(*printed, strict=True)
            panel.plot(xs, centers, "o", color=PAPERS, markersize=4, markerfacecolor="none")
        if default is not None and default.center is not None:
            panel.axhline(default.center, color=DEFAULT_LINE, linestyle="--", linewidth=1)
        panel.set_title(column, fontsize=9)
        panel.grid(alpha=0.3)
    axes[0].set_ylabel(table.y_label)
    _legend(table, results, axes[-1])


def _bars(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    panel = axes[0]
    for place, entry in enumerate(table.entries):
        if (spread := ours(entry, results)) and spread.center is not None:
            panel.bar(place, spread.center, color=OURS)
            _bar(panel, spread, place, EMPHASIS, upright=True)
        if (printed := papers(entry)) and printed.center is not None:
            panel.plot(place, printed.center, "o", color=PAPERS, markersize=4, markerfacecolor="none")
    panel.axhline(0, color=EMPHASIS, linewidth=0.8)  # heights are compared from 0, also where the paper's stand alone
    panel.set_xlim(-0.6, len(table.entries) - 0.4)
    panel.set_xticks(range(len(table.entries)), table.rows, rotation=45, fontsize=8)
    panel.set_xlabel(table.x_label)
    panel.set_ylabel(table.y_label)
    _legend(table, results, panel)


def _grid(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A square a row and column, the darker the higher: our mean, its standard deviation, in brackets the paper's."""
    panel, rows, columns = axes[0], table.rows, table.columns
    found = {(entry.row, entry.column): measured(entry, results) for entry in table.entries}
    means = {place: one.mean for place, one in found.items() if one.values}
    if means:
        lowest, highest = min(means.values()), max(means.values())
        lightest = lowest - 0.25 * (highest - lowest or 1.0)  # the lowest is told from what was not run
        panel.imshow(
            [[means.get((row, column), float("nan")) for column in columns] for row in rows],
            cmap="Blues", vmin=lightest, vmax=highest + 0.5 * (highest - lightest), aspect="auto",
        )  # fmt: skip
    for entry in table.entries:
        place, one = (columns.index(entry.column), rows.index(entry.row)), found[entry.row, entry.column]
        lines = [(f"{one.mean:.1f}", 8.0)] if one.values else []
        lines += [(f"±{one.std:.1f}", 6.5)] if one.std is not None else []
        lines += [(f"[{entry.paper}]", 8.0)] if entry.paper else []
        for index, (text, size) in enumerate(lines):
            points_up = 10.0 * ((len(lines) - 1) / 2 - index)
            panel.annotate(
                text, place, (0, points_up), textcoords="offset points", ha="center", va="center", fontsize=size
            )
    panel.set_xticks(range(len(columns)), columns, fontsize=8)
    panel.set_yticks(range(len(rows)), rows, fontsize=8)
    panel.set_xlim(-0.5, len(columns) - 0.5)
    panel.set_ylim(len(rows) - 0.5, -0.5)


def _legend(table: Table, results: dict[str, Result], panel: "Axes") -> None:
    """Where the paper's numbers are drawn, which are whose; beside the panels, so that it hides nothing."""
    from matplotlib.lines import Line2D

    if not any(papers(entry) for entry in table.entries):
        return
    look: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 4}
    handles = [Line2D([], [], color=PAPERS, markerfacecolor="none", label="paper", **look)]
    if any(ours(entry, results) for entry in table.entries):
        handles.insert(0, Line2D([], [], color=OURS, label="ours", **look))
    panel.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)

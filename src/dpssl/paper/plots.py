"""A table or figure drawn with matplotlib -> PNG and SVG: ours filled with a bar or band of one standard deviation, the
paper's hollow beside it, a grid as shaded squares with its numbers. What was not run is not drawn.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpssl.errors import InputError, RunFolderError
from dpssl.paper.entries import Entry, Table
from dpssl.paper.numbers import as_number
from dpssl.paper.results import Result, measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, PAPERS, DEFAULT_LINE, EMPHASIS = "#0072b2", "#d55e00", "#c00000", "#000000"
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
        figure = _draw(table, results)
        written = []
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):  # equal numbers give equal bytes
            path = folder / f"{name}.{kind}"
            try:
                figure.savefig(path, dpi=150, metadata=metadata)
            except OSError as error:
                raise RunFolderError(f"{path}: cannot be written ({error}); choose another --out") from error
            written.append(path)
    return written


def _draw(table: Table, results: dict[str, Result]) -> "Figure":
    from matplotlib.figure import Figure

    draw = {"dots": _dots, "lines": _lines, "panels": _panels, "bars": _bars, "grid": _grid}[table.plot]
    n_panels = len(table.columns) if table.plot in ("dots", "panels") else 1
    height = 1.2 + 0.28 * len(table.rows) if table.plot == "dots" else 4.2
    width = 2.2 + 2.4 * n_panels if n_panels > 1 else 7.2
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, n_panels, squeeze=False, sharey=table.plot in ("dots", "panels"))[0]
    draw(table, results, list(axes))
    figure.suptitle(table.title, fontsize=11)
    return figure


def _dots(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A panel a column, a line a row."""
    places = {row: place for place, row in enumerate(table.rows)}
    for panel, column in zip(axes, table.columns, strict=True):
        for entry in table.entries:
            if entry.column != column:
                continue
            mean, std = _ours(entry, results)
            if mean is not None:
                panel.errorbar(mean, places[entry.row] - 0.12, xerr=std, fmt="o", color=OURS, markersize=4, capsize=2)
            if printed := as_number(entry.paper):
                panel.errorbar(
                    printed[0], places[entry.row] + 0.12, xerr=printed[1] or None, fmt="o", color=PAPERS,
                    markersize=4, markerfacecolor="none", capsize=2,
                )  # fmt: skip
        panel.set_title(column, fontsize=8)
        panel.set_yticks(list(places.values()), list(places), fontsize=8)
        panel.set_ylim(len(places) - 0.5, -0.5)
        panel.grid(alpha=0.3)
        panel.tick_params(labelsize=8)
    _legend(table, axes[-1])


def _lines(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A line a row over x, with a band of one standard deviation; the paper's points hollow in the same colour.

    Both scales are logarithmic, since methods differ by factors. The one that matters here is black, above all others.
    """
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    panel = axes[0]
    for index, row in enumerate(table.rows):
        entries = [entry for entry in table.entries if entry.row == row]
        colour, (style, marker) = COLOURS[index % len(COLOURS)], STYLES[index // len(COLOURS) % len(STYLES)]
        weight, above = 1.3, 2.0
        if row == table.emphasis:
            colour, style, marker, weight, above = EMPHASIS, "-", "D", 2.6, 4.0
        found = [(entry.x, *_ours(entry, results)) for entry in entries]
        points = [(x, mean, std or 0.0) for x, mean, std in found if x is not None and mean is not None]
        if points:
            xs, means, stds = zip(*points, strict=True)
            panel.plot(
                xs, means, style, marker=marker, markersize=4, color=colour, label=row, linewidth=weight, zorder=above
            )
            lower, upper = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
            panel.fill_between(xs, lower, upper, color=colour, alpha=0.1, linewidth=0)
        printed = [(entry.x, number[0]) for entry in entries if (number := as_number(entry.paper))]
        if printed:
            label = None if points else f"{row} (paper)"
            hollow: dict[str, Any] = {"markersize": 5, "markerfacecolor": "none", "linestyle": ""}
            panel.plot(*zip(*printed, strict=True), marker=marker, color=colour, label=label, **hollow)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ticks = sorted({entry.x for entry in table.entries if entry.x is not None})
    panel.set_xticks(ticks, [f"{x:g}" for x in ticks])
    panel.minorticks_off()
    panel.set_xlabel(table.x_label)
    panel.set_ylabel(table.y_label)
    panel.grid(alpha=0.3)
    if panel.get_legend_handles_labels()[0]:
        panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _panels(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A panel a column over x, with the entry that all panels share as a dashed line."""
    shared = set.intersection(
        *({entry.cells for entry in table.entries if entry.column == column} for column in table.columns)
    )
    default = next((entry for entry in table.entries if entry.cells in shared), None)
    for panel, column in zip(axes, table.columns, strict=True):
        entries = [entry for entry in table.entries if entry.column == column]
        found = [(entry.x, *_ours(entry, results)) for entry in entries]
        points = [(x, mean, std or 0.0) for x, mean, std in found if x is not None and mean is not None]
        if points:
            xs, means, stds = zip(*points, strict=True)
            panel.errorbar(xs, means, yerr=stds, fmt="o-", color=OURS, markersize=4, capsize=2)
        printed = [(entry.x, number[0]) for entry in entries if (number := as_number(entry.paper))]
        if printed:
            panel.plot(*zip(*printed, strict=True), "o", color=PAPERS, markerfacecolor="none")
        if default is not None and (mean := _ours(default, results)[0]) is not None:
            panel.axhline(mean, color=DEFAULT_LINE, linestyle="--", linewidth=1)
        panel.set_title(column, fontsize=9)
        panel.grid(alpha=0.3)
    axes[0].set_ylabel(table.y_label)
    _legend(table, axes[-1])


def _bars(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    panel = axes[0]
    for place, entry in enumerate(table.entries):
        mean, std = _ours(entry, results)
        if mean is not None:
            panel.bar(place, mean, yerr=std, color=OURS, capsize=2)
        if printed := as_number(entry.paper):
            panel.plot(place, printed[0], "o", color=PAPERS, markerfacecolor="none")
    panel.set_xticks(range(len(table.entries)), table.rows, rotation=45, fontsize=8)
    panel.set_xlabel(table.x_label)
    panel.set_ylabel(table.y_label)
    _legend(table, panel)


def _grid(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A square a row and column, the darker the higher, with our mean and below it in brackets the paper's number."""
    panel, rows, columns = axes[0], table.rows, table.columns
    means = {(entry.row, entry.column): _ours(entry, results)[0] for entry in table.entries}
    shades = [[means.get((row, column)) for column in columns] for row in rows]
    known = [mean for mean in means.values() if mean is not None]
    if known:
        lightest = min(known) - 0.25 * (max(known) - min(known) or 1.0)  # the lowest is told from what was not run
        missing = float("nan")
        panel.imshow(
            [[missing if mean is None else mean for mean in line] for line in shades],
            cmap="Blues", vmin=lightest, vmax=max(known) + 0.5 * (max(known) - lightest), aspect="auto",
        )  # fmt: skip
    for entry in table.entries:
        mean = means[entry.row, entry.column]
        lines = ([] if mean is None else [f"{mean:.1f}"]) + ([f"[{entry.paper}]"] if entry.paper else [])
        place = columns.index(entry.column), rows.index(entry.row)
        panel.text(*place, "\n".join(lines), ha="center", va="center", fontsize=8)
    panel.set_xticks(range(len(columns)), columns, fontsize=8)
    panel.set_yticks(range(len(rows)), rows, fontsize=8)
    panel.set_xlim(-0.5, len(columns) - 0.5)
    panel.set_ylim(len(rows) - 0.5, -0.5)


def _ours(entry: Entry, results: dict[str, Result]) -> tuple[float | None, float | None]:
    found = measured(entry, results)
    return (found.mean, found.std) if found.values else (None, None)


def _legend(table: Table, panel: "Axes") -> None:
    """Where the paper's numbers stand beside ours, which is which."""
    from matplotlib.lines import Line2D

    if not any(as_number(entry.paper) for entry in table.entries):
        return
    ours = Line2D([], [], color=OURS, marker="o", linestyle="", markersize=4, label="ours")
    papers = Line2D([], [], color=PAPERS, marker="o", linestyle="", markersize=4, markerfacecolor="none", label="paper")
    panel.legend(handles=[ours, papers], fontsize=7)

"""Pictures over x: a line a method on logarithmic scales (Figure 1), a panel a curve (Figure 3); and the bar of one
standard deviation that all pictures share.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dpssl.paper.entries import Entry, Table
from dpssl.paper.plot_scales import by_last_error, our_mark, papers_mark
from dpssl.paper.plot_values import Spread, default_of_panels, foot_of_log_axis
from dpssl.paper.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, PAPERS, DEFAULT_LINE, EMPHASIS, ASIDE = "#0072b2", "#d55e00", "#c00000", "#000000", "#595959"
# At least 17 apart in CIELAB, pair by pair and from black, to eyes without red or green cones too. Each method has a
# marker of its own besides, and those that share a colour differ in their lines.
COLOURS = (
    *("#332288", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"),
    *("#882255", "#0072b2", "#e69f00", "#5a3a00"),
)
MARKERS = ("o", "s", "^", "v", "P", "d", "<", ">", "p", "*", "h")
STYLES = ("-", "--", "-.", ":")
GROUP, MOST_APART = "#f0f0f0", 0.42  # behind the methods of one x; how much of the way to the next x they take


def draw_bar(panel: "Axes", spread: Spread, place: float, colour: str, *, upright: bool, **look: Any) -> None:
    """A bar from end to end, if there is one; not about the number, which need not be in the middle."""
    if spread.ends is None:
        return
    middle, half = (spread.ends[0] + spread.ends[1]) / 2, (spread.ends[1] - spread.ends[0]) / 2
    look = {"ecolor": colour, "capsize": 2, **look}
    if upright:
        panel.errorbar(place, middle, yerr=half, fmt="none", **look)
    else:
        panel.errorbar(middle, place, xerr=half, fmt="none", **look)


def draw_lines(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A line a row over x, thin and with thin bars; the one that matters here black, with a band, above all others.

    Both scales are logarithmic, since methods differ by factors. At each x the methods stand side by side in the order
    of their last errors, which is the legend's too; bands of all would add up to grey. The paper's points are hollow.
    """
    panel, foot = axes[0], foot_of_log_axis(table, results)
    xs = sorted({entry.x for entry in table.entries if entry.x is not None})
    apart = MOST_APART * min((math.log10(after / before) for before, after in pairwise(xs)), default=1)
    for x in xs:
        panel.axvspan(x * 10 ** (-apart / 2), x * 10 ** (apart / 2), color=GROUP, linewidth=0, zorder=0)
    drawn = by_last_error(table, results)
    for rank, row in enumerate(drawn):
        aside = 10 ** (apart * ((rank + 0.5) / len(drawn) - 0.5))
        _line(panel, table, results, row, aside, foot)
    _log_axes(panel, xs, foot)
    panel.set_xlabel(table.x_label)
    panel.set_ylabel(table.y_label)
    panel.grid(axis="y", alpha=0.3)
    if drawn:
        panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, handlelength=3.2)


def _line(panel: "Axes", table: Table, results: dict[str, Result], row: str, aside: float, foot: float | None) -> None:
    """One method: ours with its bars or band, the paper's hollow; every x is multiplied by `aside`."""
    entries, place = [entry for entry in table.entries if entry.row == row], table.rows.index(row)
    look: dict[str, Any] = {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 4.5,
    }
    style, weight, above = STYLES[place % len(STYLES)], 0.9, 2.0
    if row == table.emphasis:
        look, style, weight, above = {"color": EMPHASIS, "marker": "D", "markersize": 5.5}, "-", 2.4, 4.0
    points = _points((entry, our_mark(entry, results)) for entry in entries)
    if len(points) == 1:
        style = ""  # a legend shows no line that the picture has not
    if points:
        xs, *drawn = zip(*((x * aside, *values) for x, *values in points), strict=True)
        centers, lows, highs = ([max(value, foot or value) for value in values] for values in drawn)
        panel.plot(xs, centers, linestyle=style, linewidth=weight, label=row, zorder=above, **look)
        for x, *ends in zip(xs, lows, highs, strict=True):
            if ends[0] < ends[1]:
                bar = Spread(None, (ends[0], ends[1]))
                draw_bar(panel, bar, x, look["color"], upright=True, capsize=0, elinewidth=0.8, alpha=0.7)
        if row == table.emphasis:
            panel.fill_between(xs, lows, highs, color=EMPHASIS, alpha=0.12, linewidth=0)
    if printed := _points((entry, papers_mark(entry)) for entry in entries):
        xs, numbers, *_ = zip(*printed, strict=True)
        label = None if points else f"{row} (paper)"
        panel.plot(
            [x * aside for x in xs], numbers, linestyle="", markerfacecolor="none", label=label, zorder=above, **look
        )


def _points(found: Iterable[tuple[Entry, Spread | None]]) -> list[tuple[float, float, float, float]]:
    """Place, number, and the ends of its band, which are the number itself where there is none."""
    return [
        (entry.x, spread.center, *(spread.ends or (spread.center, spread.center)))
        for entry, spread in found
        if entry.x is not None and spread is not None and spread.center is not None
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


def draw_panels(table: Table, results: dict[str, Result], axes: "Sequence[Axes]") -> None:
    """A panel a column over x, whose ticks are the x with numbers; what all panels share is a dashed line."""
    default = default_of_panels(table, results)
    for panel, column in zip(axes, table.columns, strict=True):
        entries = table.of_column(column)
        for entry in entries:
            if entry.x is not None and (spread := our_mark(entry, results)):
                draw_bar(panel, spread, entry.x, OURS, upright=True)
        points = _points((entry, our_mark(entry, results)) for entry in entries)
        if points:
            xs, centers, *_ = zip(*points, strict=True)
            panel.plot(xs, centers, "o-", color=OURS, markersize=4)
        printed = _points((entry, papers_mark(entry)) for entry in entries)
        if printed:
            xs, centers, *_ = zip(*printed, strict=True)
            panel.plot(xs, centers, "o", color=PAPERS, markersize=4, markerfacecolor="none")
        if default is not None and default.center is not None:
            panel.axhline(default.center, color=DEFAULT_LINE, linestyle="--", linewidth=1)
        ticks = sorted({x for x, *_ in (*points, *printed)})
        panel.set_xticks(ticks, [f"{x:g}" for x in ticks])
        panel.set_xlabel(table.x_label or column.removeprefix("over "))
        panel.set_title(column, fontsize=9)
        panel.grid(alpha=0.3)
    axes[0].set_ylabel(table.y_label)

"""What of a table is drawn: each entry's number with the ends of its bar, where a logarithmic axis ends, and the words
below the picture. Nothing here draws.
"""

from dataclasses import dataclass
from statistics import median

from dpssl.paper.entries import Entry, Table
from dpssl.paper.numbers import as_number, as_range
from dpssl.paper.results import Result, measured

LOWEST_SHARE = 0.1  # of the smallest number: how far down a bar may stretch a logarithmic axis


@dataclass(frozen=True)
class Spread:
    """A number and the ends of its bar: one standard deviation to each side, or the least and the greatest."""

    center: float | None  # None where the paper prints the ends alone
    ends: tuple[float, float] | None = None  # None for one run, or where the paper prints no deviation


def ours(entry: Entry, results: dict[str, Result]) -> Spread | None:
    """What we measured; None where nothing was run."""
    found = measured(entry, results)
    if not found.values:
        return None
    if entry.statistic == "range":
        ends = (min(found.values), max(found.values)) if len(found.values) > 1 else None
        return Spread(median(found.values), ends)
    return _around(found.mean, found.std)


def papers(entry: Entry) -> Spread | None:
    """What the paper prints; None where it prints nothing."""
    if spread := as_range(entry.paper):
        return Spread(spread[1], (spread[0], spread[2]))
    number = as_number(entry.paper)
    return _around(number[0], number[1] or None) if number else None


def _around(mean: float, std: float | None) -> Spread:
    return Spread(mean, None if std is None else (mean - std, mean + std))


def default_of_panels(table: Table, results: dict[str, Result]) -> Spread | None:
    """What we measured of the entry that all panels share; None with one panel, where any entry would be that."""
    if len(table.columns) < 2:
        return None
    shared = set.intersection(*({entry.cells for entry in table.of_column(column)} for column in table.columns))
    return next((ours(entry, results) for entry in table.entries if entry.cells in shared), None)


def foot_of_log_axis(table: Table, results: dict[str, Result]) -> float | None:
    """Where 0 stands on a logarithmic axis, if a number is 0 or a band reaches so low; None if the axis shows all.

    It is half of the smallest value above 0. A band that ends just above 0 would still stretch the axis without bound,
    so that it is cut at a tenth of the smallest number.
    """
    drawn = [spread for entry in table.entries if (spread := ours(entry, results))]
    centers = [
        spread.center for spread in (*drawn, *map(papers, table.entries)) if spread and spread.center is not None
    ]
    values = [*centers, *(spread.ends[0] for spread in drawn if spread.ends)]
    smallest = min((center for center in centers if center > 0), default=1.0)
    foot = max(min((value for value in values if value > 0), default=1.0) / 2, LOWEST_SHARE * smallest)
    return foot if any(value < foot for value in values) else None


def footer(table: Table, results: dict[str, Result]) -> list[str]:
    """Sentences on what a reader of the picture alone has to know: runs, bars, and the budgets of what is drawn."""
    counts = [n for entry in table.entries if (n := len(measured(entry, results).values))]
    sentence = "; ".join([_runs(counts), *_marks(table, results)]) + "."
    budgets = [table.budget] if counts else []
    if any(papers(entry) for entry in table.entries):
        budgets.append(table.plan.scale.note)
    return [sentence, *budgets, *(table.disclosures if counts else [])]


def _runs(counts: list[int]) -> str:
    if not counts:
        return "Ours: nothing was run"
    least, most = min(counts), max(counts)
    number = f"{most}" if least == most else f"{least} to {most}"
    return f"Ours: each number from {number} {'run' if most == 1 else 'runs'}"


def _marks(table: Table, results: dict[str, Result]) -> list[str]:
    """What bars, bands and hollow marks mean, of those that are drawn."""
    measures = [(entry, ours(entry, results)) for entry in table.entries]
    printed = [(entry, papers(entry)) for entry in table.entries]
    barred = [entry for entry, spread in measures if spread and spread.ends]
    name = {"lines": "bars", "grid": "±"}.get(table.plot, "bars" if barred else "the paper's bars")
    if table.emphasis in {entry.row for entry in barred}:
        name += f", and the band of {table.emphasis}"
    if table.plot == "dots":  # elsewhere the paper's numbers have no bars
        barred += [entry for entry, spread in printed if spread and spread.ends]
    marks = []
    if any(entry.statistic == "mean" for entry in barred):
        marks.append(f"{name}: one standard deviation")
    if ranged := dict.fromkeys(entry.column for entry in barred if entry.statistic == "range"):
        marks.append(f"bars of {', '.join(ranged)}: from the least to the greatest, with the median")
    if table.plot == "dots" and any(spread and spread.center is None for _, spread in printed):
        marks.append("a bar without a dot: the paper prints no median")
    if table.plot in ("lines", "grid") and any(spread for _, spread in printed):
        marks.append({"lines": "hollow: the paper's", "grid": "in brackets: the paper's"}[table.plot])
    if table.plot == "panels" and default_of_panels(table, results):
        marks.append("dashed: the default")
    if table.plot == "lines" and (foot := foot_of_log_axis(table, results)) is not None:
        marks.append(f"the axis is cut: what is below {foot:.2g} is drawn at 0")
    return marks

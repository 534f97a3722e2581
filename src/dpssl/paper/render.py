"""A table as Markdown and LaTeX: ours with the number of runs, the paper's number beside it in brackets.

What was not run is left blank. Names and messages from elsewhere are escaped.
"""

from collections.abc import Callable, Iterable
from statistics import median

from dpssl.paper.cells import each_once
from dpssl.paper.entries import COUNT, Entry, Table
from dpssl.paper.results import Measured, Result, measured, measured_cells

Escape = Callable[[str], str]
LEGEND = "Ours: mean ± sample standard deviation over seeds (number of runs)"
MOST_COLUMNS = 5  # of a LaTeX table that fits a page as it is
LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "±": r"$\pm$",
    "Π": r"$\Pi$",
    "ρ": r"$\rho$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def entry_text(entry: Entry, results: dict[str, Result]) -> str:
    """What stands in an entry's place: `7.12 ± 0.31 (3) [6.54 ± 0.98]`, or less where there is less."""
    found = measured(entry, results)
    ours = f"{_number(entry, found)} ({len(found.values)})" if found.values else ""
    paper = f"[{entry.paper.replace('±', ' ± ')}]" if entry.paper else ""
    return " ".join(part for part in (ours, paper) if part)


def _number(entry: Entry, found: Measured) -> str:
    decimals = 1 if entry.shown_as == COUNT else 2
    if entry.statistic == "range":
        return ", ".join(
            f"{value:.{decimals}f}" for value in (min(found.values), median(found.values), max(found.values))
        )
    spread = "" if found.std is None else f" ± {found.std:.{decimals}f}"
    return f"{found.mean:.{decimals}f}{spread}"


def notes(table: Table, results: dict[str, Result], problems: Iterable[str] = ()) -> list[str]:
    """What a reader has to know: legend, budget, what ran where, what is missing, failed or not counted."""
    shown = each_once(cell for entry in table.entries for cell in measured_cells(entry, results))
    done = [results[cell.name] for cell in shown]
    legend = f"{LEGEND} [the paper's number]." if any(entry.paper for entry in table.entries) else f"{LEGEND}."
    lines = [legend, table.budget, table.plan.scale.note, *table.all_notes]
    if done:
        minutes = sorted({f"{result.minutes:.1f}" for result in done if result.minutes is not None}, key=float)
        taken = f", {' to '.join(dict.fromkeys((minutes[0], minutes[-1])))} minutes each" if minutes else ""
        devices = " and ".join(sorted({str(result.device) for result in done}))
        were = "was" if len(done) == 1 else "were"
        lines.append(f"{len(done)} of {len(table.cells)} cells {were} run{taken}, on {devices}, by {_makers(done)}.")
    else:
        lines.append(f"None of {len(table.cells)} cells was run.")
    lines += [f"Failed: {name} ({result.error})." for name, result in results.items() if result.error is not None]
    return [*lines, *(f"Note: {problem}." for problem in problems)]


def _makers(done: Iterable[Result]) -> str:
    """By which versions the runs were made, and at how many commits."""
    commits = dict[str, set[str]]()
    for result in done:
        commits.setdefault(result.dpssl, set()).update((result.commit or "").split(", "))
    return " and ".join(f"dpssl {version} at {_commits(found)}" for version, found in sorted(commits.items()))


def _commits(found: set[str]) -> str:
    if len(found) > 1:
        return f"{len(found)} commits, which the files name"
    (commit,) = found
    if not commit:
        return "an unknown commit"
    return f"commit {commit[:8]}" + (" with changes" if commit.endswith("+") else "")


def markdown(table: Table, results: dict[str, Result], problems: Iterable[str] = ()) -> str:
    """A table for GitHub, with its title and notes."""
    grid = _grid(table, results, escape_markdown)
    lines = [f"### {escape_markdown(table.title)}", "", *(f"| {' | '.join(row)} |" for row in grid)]
    lines.insert(3, f"| --- |{' ---: |' * len(table.columns)}")
    return "\n".join([*lines, "", *(f"- {escape_markdown(line)}" for line in notes(table, results, problems))]) + "\n"


def latex(table: Table, results: dict[str, Result], problems: Iterable[str] = ()) -> str:
    """A LaTeX table; needs the package booktabs, and graphicx where many columns have to fit the width of the text."""
    is_wide = len(table.columns) > MOST_COLUMNS
    header, *rows = (" & ".join(row) + r" \\" for row in _grid(table, results, escape_latex))
    caption = " ".join(escape_latex(line) for line in (f"{table.title}.", *notes(table, results, problems)))
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            *([r"  \resizebox{\linewidth}{!}{%"] if is_wide else []),
            rf"  \begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"    \toprule",
            f"    {header}",
            r"    \midrule",
            *(f"    {row}" for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}" + ("}" if is_wide else ""),
            r"\end{table}",
            "",
        ]
    )


def _grid(table: Table, results: dict[str, Result], escape: Escape) -> list[list[str]]:
    """Header and rows, escaped; a place without an entry is empty."""
    texts = {(entry.row, entry.column): entry_text(entry, results) for entry in table.entries}
    rows = [["", *table.columns], *([row, *(texts.get((row, c), "") for c in table.columns)] for row in table.rows)]
    return [[escape(text) for text in row] for row in rows]


def escape_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in " ".join(text.split()))


def escape_markdown(text: str) -> str:
    """`text` as Markdown shows it: no table rule, emphasis, code or HTML comes out of it."""
    text = " ".join(text.split()).replace("\\", "\\\\").replace("<", "&lt;")
    for character in "|*`_":
        text = text.replace(character, f"\\{character}")
    return text

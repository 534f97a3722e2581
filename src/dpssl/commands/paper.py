"""`dpssl paper`: the paper's tables and figures, run where something is missing and drawn from what was measured."""

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpssl.commands.command import Command
from dpssl.commands.session import EXIT_SIGNAL
from dpssl.errors import InputError

if TYPE_CHECKING:
    from dpssl.paper.cells import Cell
    from dpssl.paper.entries import Table
    from dpssl.paper.plans import Plan
    from dpssl.paper.results import Result

EXIT_FAILED_CELLS = 1
DONE = "done"
RESULTS = "results/cells"
MOST_AT_ONCE = 1024  # cells, or threads of a cell
MOST_LETTERS = 100  # in a file's name, of what tells it apart


def run_paper(chosen: dict[str, Any]) -> int:
    """Run the missing cells of a table and print it; with --render draw it instead, with --list name its cells."""
    from dpssl.paper.cells import select
    from dpssl.paper.results import folder_of_results, other_runs, read_results
    from dpssl.paper.tables import table

    if chosen["steps"] is not None and chosen["steps"] < 4:
        raise InputError(f"--steps {chosen['steps']}: must be at least 4")
    if not chosen["max_minutes"] >= 0:  # nor NaN
        raise InputError(f"--max-minutes {chosen['max_minutes']:g}: must be at least 0")
    for name in ("jobs", "threads"):
        least = int(name == "jobs")
        if not least <= chosen[name] <= MOST_AT_ONCE:
            raise InputError(f"--{name} {chosen[name]}: must be between {least} and {MOST_AT_ONCE}")
    if chosen["list"] and chosen["render"]:
        raise InputError("--list --render: choose one of them")
    wanted = table(chosen["table"], chosen["scale"], chosen["steps"], chosen["seeds"])
    cells = select(wanted.cells, chosen["cells"])
    if not chosen["render"] and not chosen["list"]:
        return _run(wanted, cells, chosen)
    folder = folder_of_results(chosen["results"], may_be_missing=chosen["results"] == RESULTS)  # before the first run
    results, problems = read_results(folder, cells)
    if chosen["list"]:
        print("\n".join(f"note: {problem}" for problem in problems), file=sys.stderr, end="\n" if problems else "")
        states = [_state(cell, results, Path(chosen["runs"])) for cell in cells]
        print("\n".join(f"{cell.name}: {state}" for cell, state in zip(cells, states, strict=True)))
        print(f"{states.count(DONE)} of {len(cells)} cells are done", file=sys.stderr)
        return 0
    part = wanted.of(cells)
    is_part = len(part.cells) < len(wanted.cells)
    _render(part, results, problems, chosen["out"], chosen["cells"] if is_part else [])
    for flag, n in other_runs(folder, cells).items():
        runs = "run" if n == 1 else "runs"
        print(f"note: {folder.folder} has files of {n} {runs} like these with {flag}", file=sys.stderr)
    return 0


def _state(cell: "Cell", results: "dict[str, Result]", runs: Path) -> str:
    from dpssl.paper.cells import folder_name

    found = results.get(cell.name)
    if found is not None and found.error is not None:
        return f"failed ({found.error})"
    if found is not None and found.has(cell):
        return DONE
    is_begun = os.path.isdir(runs / folder_name(cell))  # False, too, where it may not be looked into
    return "begun" if is_begun else "to run"


def _run(wanted: "Table", cells: "list[Cell]", chosen: dict[str, Any]) -> int:
    from dpssl.paper.render import markdown
    from dpssl.paper.runner import Place, run_cells

    jobs = chosen["jobs"]
    threads = chosen["threads"] or (max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else 0)
    place = Place(chosen["results"], chosen["runs"], chosen["device"], threads, jobs, chosen["max_minutes"])
    outcome = run_cells(cells, place, lambda line: print(line, file=sys.stderr, flush=True))
    print(markdown(wanted.of(cells), outcome.results, outcome.problems), end="")
    if outcome.left:
        print(f"{len(outcome.left)} of {len(cells)} cells left; the same command goes on with them", file=sys.stderr)
    if outcome.received:
        return EXIT_SIGNAL + outcome.received[-1]
    return EXIT_FAILED_CELLS if outcome.failed else 0


def _render(
    wanted: "Table", results: "dict[str, Result]", problems: list[str], out: str, filters: Sequence[str]
) -> None:
    from dpssl.paper.plots import write_plots
    from dpssl.paper.render import latex, markdown
    from dpssl.paper.results import made_folder

    plan, folder = wanted.plan, made_folder(out, "--out")
    name = f"{wanted.name}-{plan.scale.name}{_told_apart(plan, filters)}"
    text = markdown(wanted, results, problems)
    folder.write_text(f"{name}.md", text)
    folder.write_text(f"{name}.tex", latex(wanted, results, problems))
    pictures = write_plots(wanted, results, folder.folder, name)
    print(text)
    written = (folder.path(f"{name}.md"), folder.path(f"{name}.tex"), *pictures)
    print(f"Written: {', '.join(map(str, written))}")


def _told_apart(plan: "Plan", filters: Sequence[str]) -> str:
    """What a part, another budget or other seeds add to a file's name, so that none takes another's place."""
    name = f"-{plan.steps}-steps" if plan.steps != plan.scale.steps else ""
    name += f"-seeds-{'-'.join(map(str, plan.seeds))}" if plan.seeds != plan.scale.seeds else ""
    name += f"-part-{'-'.join(filters)}" if filters else ""
    safe = re.sub(r"[^\w.,-]+", "-", name)
    return (
        safe if len(safe) <= MOST_LETTERS else f"{safe[:MOST_LETTERS]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    )


def _add_paper(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    tables = "table1 to table5, fig1, fig3, fig-specialists, barely, oracle-regularizer or annotation"
    add("table", metavar="TABLE", help=tables)
    add(
        "--scale",
        default="paper",
        help="paper: its sets; fashion: a smaller one; small: digits, on a CPU (default: paper)",
    )
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}  # given twice, both count
    add("--cells", **several, metavar="NAME=VALUE", help="only these: method, data, labels, seed, variant")
    add("--seeds", **several, type=int, help="default: 1 to 5 at the scale paper, 1 to 3 at the others")
    add("--steps", type=int, help="budget of every cell; default: 60000 at paper, 5000 at fashion, 1200 at small")
    add(
        "--max-minutes", type=float, default=0.0, help="stop cleanly after so many; the same command goes on; 0 = never"
    )
    add("--jobs", type=int, default=1, help="cells that run at once (default: 1)")
    add("--threads", type=int, default=0, help="CPU threads of a cell; 0 = as its preset says, or cores / jobs")
    add("--device", default="auto", choices=("auto", "cpu", "cuda"), help="what cells train on (default: auto)")
    add("--results", default=RESULTS, help="folder of the results, a file a cell (default: results/cells)")
    add("--runs", default="runs/cells", help="folder of the cells' run folders (default: runs/cells)")
    add("--render", action="store_true", help="run nothing; write the table as Markdown, LaTeX, PNG and SVG to --out")
    add("--list", action="store_true", help="run nothing; list the cells and whether they are done")
    add("--out", default="results/tables", help="folder that --render writes to (default: results/tables)")


COMMANDS = (Command("paper", "run and draw the paper's tables and figures", _add_paper, run_paper),)

"""`dpssl report RUN`: report.html, the run to look at. Also what every run ends with."""

import argparse
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dpssl.commands.command import Command
from dpssl.errors import InputError

if TYPE_CHECKING:
    from dpssl.runs import Run

NEEDED = ("matplotlib", "jinja2")


def run_report(chosen: dict[str, Any]) -> int:
    """Make the page of an existing run; scores it first where that has not been done."""
    from dpssl.pipeline import SUMMARY, evaluate
    from dpssl.runs import open_run

    if lacking := _lacking():
        raise InputError(f"a report needs {lacking}: pip install {lacking}")
    run = open_run(chosen["source"], writes=False)
    if not run.folder.has(SUMMARY):
        evaluate(run)
    print(f"Report: {_write(run)}")
    return 0


def report_or_note(run: "Run") -> None:
    """The page at the end of a run. What it needs may be missing on a machine that only trains: no reason to fail."""
    if lacking := _lacking():
        print(
            f"note: no report.html, which needs {lacking}; "
            f"pip install {lacking}, then `dpssl report {run.folder.folder}`",
            file=sys.stderr,
        )
    else:
        print(f"Report: {_write(run)}")


def _lacking() -> str:
    return " ".join(name for name in NEEDED if find_spec(name) is None)


def _write(run: "Run") -> str:
    from dpssl.report import write_report

    return str(write_report(run.folder, run.config, run.environment, run.dataset, run.split))


def _add_report(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", metavar="RUN", help="a run folder")


COMMANDS = (Command("report", "make report.html, a page that shows the run", _add_report, run_report),)

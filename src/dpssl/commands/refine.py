"""`dpssl refine RUN`: a new run that goes on from another with the labels that a person corrected."""

import argparse
import sys
from typing import Any

from dpssl.commands.command import Command
from dpssl.commands.flags import add_settings
from dpssl.commands.session import finish, say_start
from dpssl.config import with_values
from dpssl.errors import InputError


def run_refine(chosen: dict[str, Any]) -> int:
    from dpssl.pipeline import run_all
    from dpssl.refine import start_refined
    from dpssl.runs import open_run, use_config

    if chosen["refine_steps"] < 0:
        raise InputError(f"--refine-steps {chosen['refine_steps']}: must be 0 or more")
    parent = open_run(chosen["source"], writes=False)
    use_config(parent, with_values(parent.config, chosen["set"]))
    run = start_refined(parent, chosen["out"], chosen["refine_steps"])
    say_start(run)
    print(f"goes on from {parent.folder.folder} with its corrections", file=sys.stderr)
    return finish(run, run_all)


def _add_refine(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", metavar="RUN", help="a finished run with corrections of `dpssl review`")
    command.add_argument("--out", help="new run folder; default: the next free one under runs/")
    command.add_argument(
        "--refine-steps", type=int, default=0, help="steps of step 1, step 3 in proportion; 0 = a quarter of the run's"
    )
    add_settings(command, ("run",), without=("seed",))


COMMANDS = (Command("refine", "go on from a run with its corrected labels, in a new run", _add_refine, run_refine),)

"""`dpssl data`: looking at images before a run, and getting published ones."""

import argparse
import sys
from typing import Any

from dpssl.commands.command import Command, with_actions
from dpssl.commands.data_fetch import FETCH
from dpssl.commands.flags import add_settings
from dpssl.config import Config, with_values


def run_check(chosen: dict[str, Any]) -> int:
    from dpssl.data.check import describe_collection

    settings = with_values(Config(), {**chosen["set"], "data": chosen["path"]})
    for line in describe_collection(settings.data, settings.run.seed, progress=sys.stderr.isatty()):
        print(line, flush=True)
    return 0


def _add_check(command: argparse.ArgumentParser) -> None:
    command.add_argument("path", metavar="PATH", help="what --data of `dpssl run` takes")
    add_settings(command, ("data",), without=("data",))


ACTIONS = (
    Command("check", "what is in a collection of images, and what `dpssl run` would make of it", _add_check, run_check),
    FETCH,
)
COMMANDS = (with_actions("data", "look at images before a run, and get published ones: check, fetch", ACTIONS),)

"""One command of `dpssl`: its name, its line of help, its flags and what it does."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Command:
    """`add_flags` fills the command's parser; `run` takes what was chosen, by name, and returns the exit status.

    Neither imports anything heavy at the top of its module: `dpssl --help` loads all of them. A command with `actions`
    (`dpssl data check`) is made by `with_actions`.
    """

    name: str
    help: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: Callable[[dict[str, Any]], int]
    actions: tuple["Command", ...] = ()
    takes_processes: bool = False  # whether torchrun may start several of it


def with_actions(name: str, help: str, actions: tuple[Command, ...]) -> Command:
    """A command whose first argument names one of `actions`, each with flags of its own."""
    by_name = {action.name: action for action in actions}

    def add_flags(command: argparse.ArgumentParser) -> None:
        parsers = command.add_subparsers(dest="action", required=True, metavar="ACTION")
        for action in actions:
            action.add_flags(
                parsers.add_parser(action.name, help=action.help, description=action.help, allow_abbrev=False)
            )

    def run(chosen: dict[str, Any]) -> int:
        return by_name[chosen.pop("action")].run(chosen)

    return Command(name, help, add_flags, run, actions)

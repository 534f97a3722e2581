"""One command of `dpssl`: its name, its line of help, its flags and what it does."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Command:
    """`add_flags` fills the command's parser; `run` takes what was chosen, by name, and returns the exit status.

    Neither imports anything heavy at the top of its module: `dpssl --help` loads all of them.
    """

    name: str
    help: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: Callable[[dict[str, Any]], int]

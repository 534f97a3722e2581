"""`dpssl fit`: another system on the same data, loop and network, in a run folder like any other."""

from typing import Any

from dpssl.commands.adapt import adapted
from dpssl.commands.command import Command
from dpssl.commands.flags import add_new_run_flags, one_run
from dpssl.commands.session import finish, say_start
from dpssl.config import DP_SSL, METHODS
from dpssl.errors import InputError


def run_fit(chosen: dict[str, Any]) -> int:
    config = one_run(chosen)
    if config.baseline.method == DP_SSL and "method" not in chosen["set"]:
        raise InputError(f"--method: name the system to train, one of {', '.join(METHODS)}")
    from dpssl.pipeline import run_all
    from dpssl.runs import start_run

    run = start_run(config, chosen["out"], adapt=adapted(chosen))
    say_start(run)
    return finish(run, run_all)


COMMANDS = (
    Command("fit", "train another system (--method), such as fixmatch, to compare with", add_new_run_flags, run_fit),
)

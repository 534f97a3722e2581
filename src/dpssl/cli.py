"""The command line: one parser over the commands of dpssl.commands.

Flags are made from the fields of dpssl.config, so a setting has one name everywhere. Nothing heavy is imported until a
command runs: `--help` answers at once. An error that the input caused is one message and exit status 2.
"""

import argparse
import os
import select
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dpssl import __version__, commands
from dpssl.commands.command import Command
from dpssl.commands.session import EXIT_SIGNAL
from dpssl.config import meant
from dpssl.constants import THREADS_WAIT
from dpssl.errors import DPSSLError, InputError, ReportedElsewhere

EXIT_BAD_INPUT = 2
PIPE = 13  # SIGPIPE, which Windows has no name for
COMMANDS = {command.name: command for command in commands.ALL}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parsed, unknown = _parser().parse_known_args(arguments)
    chosen = vars(parsed)
    command = chosen.pop("command")
    if unknown:
        print(f"dpssl {command}: {_about_unknown(COMMANDS[command], chosen, unknown)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    for name, value in THREADS_WAIT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            with _processes(COMMANDS[command]):
                status = COMMANDS[command].run(chosen)
            if sys.stdout is not None:  # as in a service that has closed it
                sys.stdout.flush()
            return status
        except ReportedElsewhere:
            return EXIT_BAD_INPUT
        except DPSSLError as problem:
            number = "" if _number() == 0 else f" (process {_number()})"
            print(f"dpssl {command}{number}: {problem}", file=sys.stderr)
            return EXIT_BAD_INPUT
        except KeyboardInterrupt:
            print("\nstopped; `dpssl resume` continues a run, the same command what comes before it", file=sys.stderr)
            return EXIT_SIGNAL + signal.SIGINT
        except BrokenPipeError:
            if not _reader_is_gone():
                raise
            return EXIT_SIGNAL + PIPE


def _about_unknown(command: Command, chosen: dict[str, Any], arguments: Sequence[str]) -> str:
    """What is wrong with arguments that a command, or its action, does not take."""
    names = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    if not names:
        return f"does not take {' '.join(arguments)}; `--help` shows what it takes"
    taker = next((action for action in command.actions if action.name == chosen.get("action")), command)
    parser = argparse.ArgumentParser()
    taker.add_flags(parser)
    return f"has no flag {names[0]}{meant(names[0], parser._option_string_actions)}; `--help` lists all of them"


def _reader_is_gone() -> bool:
    """Whether what reads standard output (`| head`) has ended; if so, nothing more is written to it."""
    output = sys.stdout.fileno()
    if hasattr(select, "poll"):  # Windows has none
        listener = select.poll()
        listener.register(output, 0)
        if not listener.poll(0):
            return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True


def _number() -> int:
    """Of this process among those that torchrun started, or 0."""
    return int(os.environ.get("RANK", "0")) if "TORCHELASTIC_RUN_ID" in os.environ else 0


def _processes(command: Command) -> AbstractContextManager[None]:
    """Join the other processes where torchrun started several."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ["WORLD_SIZE"] == "1":
        return nullcontext()
    if not command.takes_processes:
        takers = ", ".join(name for name, other in COMMANDS.items() if other.takes_processes)
        raise InputError(
            f"torchrun started {os.environ['WORLD_SIZE']} processes, which only {takers} use; run it alone"
        )
    from dpssl.training.distributed import joined

    return joined()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpssl",
        description="Label an image collection from about four labels per class (DP-SSL).",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dpssl {__version__}")
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in commands.ALL:
        command.add_flags(
            parsers.add_parser(command.name, help=command.help, description=command.help, allow_abbrev=False)
        )
    return parser


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        print(f"note: {message}", file=sys.stderr)

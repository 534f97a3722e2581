"""`dpssl combine RUN RUN`: a new run that learns from what several others agree on."""

import argparse
import sys
from typing import Any

from dpssl.commands.command import Command
from dpssl.commands.flags import add_settings
from dpssl.commands.session import finish, say_start
from dpssl.config import ONCE_COMBINED, alone, with_values
from dpssl.constants import TRUSTED_SHARE, UNEXPLAINED_SHARE

SECTIONS = ("run", "augment", "optim", "warm_start", "labeling", "label_model", "end_model")


def run_combine(chosen: dict[str, Any]) -> int:
    import torch

    from dpssl.combine import describe_start, start_combined
    from dpssl.pipeline import run_all
    from dpssl.runs import open_run

    threads = torch.get_num_threads()
    parents = [open_run(source, writes=False) for source in chosen["sources"]]
    torch.set_num_threads(threads)  # each was opened with its own
    highest = max(parent.config.run.repeat for parent in parents)
    changed = {"repeat": highest + 1, "max_minutes": 0, **ONCE_COMBINED}
    config = with_values(alone(parents[0].config), changed | chosen["set"])
    run = start_combined(parents, config, chosen["out"], chosen["trust"], chosen["unexplained"])
    del parents  # their images
    say_start(run)
    print("\n".join(describe_start(run)), file=sys.stderr)
    return finish(run, run_all)


def _add_combine(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "sources", metavar="RUN", nargs="+", help="two or more runs on the same images and labels (`--repeat`)"
    )
    command.add_argument("--out", help="new run folder; default: the next free one under runs/")
    command.add_argument(
        "--trust",
        type=float,
        default=TRUSTED_SHARE,
        help=f"share of what the runs have labelled whose common label is taken as given; default: {TRUSTED_SHARE}",
    )
    command.add_argument(
        "--unexplained",
        type=float,
        default=UNEXPLAINED_SHARE,
        help="share of the images about which a run with a warm start has no say: the kinds that the rest of their "
        f"class explains least; default: {UNEXPLAINED_SHARE}",
    )
    add_settings(command, SECTIONS, without=("seed",))


COMMANDS = (Command("combine", "learn from what several runs agree on, in a new run", _add_combine, run_combine),)

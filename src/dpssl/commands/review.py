"""`dpssl review RUN`: a local web page to look at a run's labels and correct them."""

import argparse
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from dpssl.commands.command import Command
from dpssl.config import DP_SSL
from dpssl.errors import InputError

NEEDED = ("fastapi", "uvicorn")


def run_review(chosen: dict[str, Any]) -> int:
    if any(find_spec(name) is None for name in NEEDED):
        raise InputError("the review page needs fastapi and uvicorn: pip install 'dpssl[review]'")
    if not 0 <= chosen["port"] <= 65535:
        raise InputError(f"--port {chosen['port']}: must lie between 0 and 65535")
    from dpssl.report.contents import SOFT_LABELS, read_contents
    from dpssl.review.server import serve
    from dpssl.runs import open_run

    run = open_run(chosen["source"], writes=False)
    if not run.folder.has(SOFT_LABELS):
        raise InputError(f"{chosen['source']}: has no labels to review yet; finish it with `dpssl resume`")
    contents = read_contents(run.folder, run.config, run.environment, run.dataset, run.split)
    if run.config.baseline.method != DP_SSL:
        print(
            f"note: a run of `dpssl fit --method {run.config.baseline.method}` cannot be refined; what you decide "
            "stands in its exports",
            file=sys.stderr,
        )
    print(f"putting {len(run.dataset.ids):,} images in order of usefulness", file=sys.stderr)
    with suppress(KeyboardInterrupt):  # the way it ends
        serve(contents, chosen["who"] or _user(), chosen["host"], chosen["port"])
    return 0


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process without a name, as in some containers
        return "unknown"


def _add_review(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", metavar="RUN", help="a run folder")
    command.add_argument("--port", type=int, default=0, help="port of the page; 0 = any free one (default: 0)")
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine)")
    command.add_argument("--who", help="name to note beside each decision; default: your user name")


COMMANDS = (Command("review", "look at labels and correct them, on a local web page", _add_review, run_review),)

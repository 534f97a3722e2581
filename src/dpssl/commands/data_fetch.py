"""`dpssl data fetch`: a published set into a data folder."""

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from dpssl.commands.command import Command
from dpssl.commands.session import EXIT_SIGNAL

# Written out: the catalog is part of dpssl.data, which no command imports before it runs.
NAMES = "cifar10, cifar100, cifar100-coarse, svhn, svhn-extra, stl10, mnist, fashion-mnist"


def run_fetch(chosen: dict[str, Any]) -> int:
    from dpssl.data.published.fetch import default_folder, fetch_published
    from dpssl.data.published.read import data_folders

    to = Path(chosen["to"]).expanduser() if chosen["to"] else default_folder()
    try:
        folder = fetch_published(chosen["name"], to, chosen["mirror"], lambda line: print(line, file=sys.stderr))
    except KeyboardInterrupt:
        print("\nstopped; the same command continues where it stopped", file=sys.stderr)
        return EXIT_SIGNAL + signal.SIGINT
    found = any(to.resolve() == place.resolve() for place in data_folders())
    print(folder if found else f"{folder}\nset DPSSL_DATA={to} for --data {chosen['name']} to find it")
    return 0


def _add_fetch(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help=f"one of {NAMES}")
    command.add_argument("--to", default="", help="data folder; default: DPSSL_DATA where set, else ~/.cache/dpssl")
    command.add_argument(
        "--mirror", default="", help="address of a folder with the same files, instead of the authors'"
    )


FETCH = Command("fetch", "download a published set, checked against its checksum", _add_fetch, run_fetch)

"""`dpssl data`: looking at images before a run, and getting published ones."""

import argparse
from typing import Any

from dpssl.commands.command import Command, with_actions
from dpssl.commands.data_fetch import FETCH


def run_check(chosen: dict[str, Any]) -> int:
    from dpssl.data.readers import load_dataset

    dataset = load_dataset(chosen["path"], chosen["labels"])
    height, width, n_channels = dataset.images.shape[1:]
    print(
        f"{dataset.name}: {len(dataset.images):,} images of {width}x{height}, {n_channels} channels, "
        f"{dataset.n_classes} classes; {len(dataset.test_images):,} more for testing"
    )
    return 0


def _add_check(command: argparse.ArgumentParser) -> None:
    command.add_argument("path", metavar="PATH", help="what --data of `dpssl run` takes")
    command.add_argument("--labels", default="", help="as --labels of `dpssl run`")


ACTIONS = (Command("check", "what is in a collection of images", _add_check, run_check), FETCH)
COMMANDS = (with_actions("data", "look at images before a run, and get published ones: check, fetch", ACTIONS),)

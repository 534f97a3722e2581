"""`dpssl run`, each step alone, and `resume`."""

import argparse
import os
import time
from typing import Any

from dpssl.commands.adapt import adapted
from dpssl.commands.command import Command
from dpssl.commands.flags import add_new_run_flags, add_settings, new_config, one_run
from dpssl.commands.session import STEP_SECTIONS, finish, open_for, say_start
from dpssl.config import DP_SSL, Config, flag, with_values
from dpssl.errors import InputError

REDO_HELP = "replace this step's result in the run, and remove what was made from it"


def run_run(chosen: dict[str, Any]) -> int:
    started = time.monotonic()  # importing torch takes seconds of --max-minutes
    from dpssl.runs import start_run
    from dpssl.second_opinion import run_all

    config = new_config(chosen)
    if config.baseline.method != DP_SSL:
        config = one_run(chosen)
    run = start_run(config, chosen["out"], adapt=adapted(chosen, plans=True, started=started), started=started)
    say_start(run)
    return finish(run, run_all)


def run_lfs(chosen: dict[str, Any]) -> int:
    from dpssl.pipeline import train_labeling_functions
    from dpssl.runs import start_run

    config = one_run(chosen)
    if config.baseline.method != DP_SSL:
        raise InputError(f"--method {config.baseline.method}: has no labeling functions; `dpssl fit` trains it")
    run = start_run(config, chosen["out"], adapt=adapted(chosen))
    say_start(run)
    return finish(run, train_labeling_functions)


def run_resume(chosen: dict[str, Any]) -> int:
    from dpssl.second_opinion import run_all

    return finish(open_for(chosen, "resume"), run_all)


def run_label(chosen: dict[str, Any]) -> int:
    if os.path.isdir(chosen["source"]):
        from dpssl.pipeline import resolve_votes

        for name in ("labels", "out"):
            if chosen[name]:
                raise InputError(f"--{name} {chosen[name]}: only for a file of votes; {chosen['source']} is a run")
        return finish(open_for(chosen, "label"), resolve_votes)
    if not os.path.exists(chosen["source"]):
        raise InputError(f"{chosen['source']}: no such run folder or file of votes; `dpssl lfs` makes a run with votes")
    if chosen["redo"]:
        raise InputError(f"--redo: only for a run; {chosen['source']} is a file of votes, choose another --out")
    from dpssl.label_votes import label_vote_file

    settings = with_values(Config(), chosen["set"]).label_model
    for name in chosen["set"].keys() - vars(settings).keys():
        raise InputError(f"{flag(name)}: only for a run; {chosen['source']} is a file of votes")
    label_vote_file(chosen["source"], chosen["labels"], chosen["out"], settings)
    return 0


def run_train(chosen: dict[str, Any]) -> int:
    from dpssl.pipeline import train_classifier

    return finish(open_for(chosen, "train"), train_classifier)


def run_evaluate(chosen: dict[str, Any]) -> int:
    return finish(open_for(chosen, "evaluate"), lambda run: None)


def _add_label(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", metavar="RUN|VOTES", help="a run folder, or votes as .npz, .npy, .csv or .parquet")
    command.add_argument("--labels", help="for a file of votes: .csv with the columns id and label, for rows you know")
    command.add_argument("--out", help="for a file of votes: folder to write the soft labels to")
    command.add_argument("--redo", action="store_true", help=REDO_HELP)
    add_settings(command, ("run", *STEP_SECTIONS["label"]))


def _add_train(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", metavar="RUN", help="a run folder")
    command.add_argument("--redo", action="store_true", help=REDO_HELP)
    add_settings(command, ("run", *STEP_SECTIONS["train"]), without=("learning_rate",))  # which is that of step 1


def _add_evaluate(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", metavar="RUN", help="a run folder")
    add_settings(command, ("run",), without=("max_minutes", "plan", "checkpoint_minutes", "track"))  # it never trains


def _add_resume(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", metavar="RUN", help="a run folder")
    add_settings(command)


COMMANDS = (
    Command(
        "run",
        "all three steps: labeling functions, label model, end model (default data: digits, on a CPU)",
        add_new_run_flags,
        run_run,
        takes_processes=True,
    ),
    Command(
        "lfs",
        "step 1 alone: train the labeling functions and write their votes",
        add_new_run_flags,
        run_lfs,
        takes_processes=True,
    ),
    Command("label", "step 2 alone: soft labels from the votes of a run or of a file", _add_label, run_label),
    Command(
        "train", "step 3 alone: train the end model on a run's soft labels", _add_train, run_train, takes_processes=True
    ),
    Command("evaluate", "score a run's labels and end model, and write summary.json", _add_evaluate, run_evaluate),
    Command(
        "resume",
        "finish a run that was stopped, from its last checkpoint",
        _add_resume,
        run_resume,
        takes_processes=True,
    ),
)

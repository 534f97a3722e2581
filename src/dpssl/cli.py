"""The command line: `dpssl run`, each step alone, `resume`, and the label model on votes from elsewhere.

Flags are made from the fields of dpssl.config, so a setting has one name everywhere. Nothing heavy is imported until a
command runs: `--help` answers at once. An error that the input caused is one message and exit status 2.
"""

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dpssl import __version__
from dpssl.config import (
    Config,
    default_preset,
    flag,
    load_config_file,
    load_preset,
    options,
    preset_names,
    with_values,
)
from dpssl.errors import DPSSLError, InputError, RunFolderError

if TYPE_CHECKING:
    from dpssl.runs import Run

EXIT_BAD_INPUT = 2
EXIT_SIGNAL = 128  # plus the signal's number is what a shell reports for a program ended by it
REDO_HELP = "replace this step's result in the run, and remove what was made from it"
STEP_SECTIONS = {"label": ("label_model",), "train": ("end_model", "optim", "augment")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    chosen = vars(_parser().parse_args(arguments))
    command = chosen.pop("command")
    # Without these, torch's OpenMP threads spin while they wait, and a step takes many times longer on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return int(COMMANDS[command](chosen))
        except DPSSLError as problem:
            print(f"dpssl {command}: {problem}", file=sys.stderr)
            return EXIT_BAD_INPUT
        except KeyboardInterrupt:
            print("\nstopped; `dpssl resume` continues from the last checkpoint", file=sys.stderr)
            return EXIT_SIGNAL + signal.SIGINT


# ------------------------------------------------------------------------------------------------------------- commands


def _run(chosen: dict[str, Any]) -> int:
    from dpssl.pipeline import run_all
    from dpssl.runs import start_run

    run = start_run(_new_config(chosen), chosen["out"])
    _say_start(run)
    return _finish(run, run_all)


def _lfs(chosen: dict[str, Any]) -> int:
    from dpssl.pipeline import train_labeling_functions
    from dpssl.runs import start_run

    run = start_run(_new_config(chosen), chosen["out"])
    _say_start(run)
    return _finish(run, train_labeling_functions)


def _resume(chosen: dict[str, Any]) -> int:
    from dpssl.pipeline import run_all

    return _finish(_open(chosen, "resume"), run_all)


def _label(chosen: dict[str, Any]) -> int:
    if os.path.isdir(chosen["source"]):
        from dpssl.pipeline import resolve_votes

        for name in ("labels", "out"):
            if chosen[name]:
                raise InputError(f"--{name} {chosen[name]}: only for a file of votes; {chosen['source']} is a run")
        return _finish(_open(chosen, "label"), resolve_votes)
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


def _train(chosen: dict[str, Any]) -> int:
    from dpssl.pipeline import train_classifier

    return _finish(_open(chosen, "train"), train_classifier)


def _evaluate(chosen: dict[str, Any]) -> int:
    return _finish(_open(chosen, "evaluate"), lambda run: None)


COMMANDS = {"run": _run, "lfs": _lfs, "label": _label, "train": _train, "evaluate": _evaluate, "resume": _resume}


# -------------------------------------------------------------------------------------------------------------- helpers


def _new_config(chosen: dict[str, Any]) -> Config:
    """Defaults, then the preset, then the config file, then flags. Without --preset, the data decides on one."""

    def settle(preset: str | None) -> Config:
        config = Config() if preset is None else load_preset(preset)
        if chosen["config"]:
            config = load_config_file(chosen["config"], config)
        return with_values(config, chosen["set"])

    preset = chosen["preset"] or default_preset(settle(None).data.data)
    return settle(preset)


def _open(chosen: dict[str, Any], command: str) -> "Run":
    """An existing run. Flags may change what the step may choose freely; anything else would make it another run."""
    from dpssl import runs
    from dpssl.training.precision import pick_device

    run = runs.open_run(chosen["source"], writes=command != "evaluate")
    changed = with_values(run.config, chosen["set"])
    free = {entry.name for entry in options() if entry.section in STEP_SECTIONS.get(command, ())}
    before, after = runs.settings_that_matter(run.config), runs.settings_that_matter(changed)
    for name in before:
        if before[name] != after[name] and name not in free:
            raise RunFolderError(
                f"{flag(name)} {after[name]!r}: this run was started with {before[name]!r}; "
                "leave the flag out, or start a new run with another --out"
            )
    runs.check(changed)  # before anything is removed
    if command == "evaluate":
        runs.use_config(run, changed)
        return run
    if command != "label":  # which runs no network
        pick_device(changed.run.device)
    if command in STEP_SECTIONS:
        _make_room(run, command, chosen["redo"], other_settings=before != after)
    if changed != run.config:
        runs.change_config(run, changed)
    return run


def _make_room(run: "Run", command: str, redo: bool, other_settings: bool) -> None:
    from dpssl.pipeline import RESULTS, forget, is_half_done

    result = run.folder.path(RESULTS[command][0])
    if redo:
        forget(run, command)
    elif result.exists():
        raise RunFolderError(f"{result} exists; --redo makes it again and removes what was made from it")
    elif other_settings and is_half_done(run, command):
        raise RunFolderError(
            f"{result} is half made with other settings; leave the flags out to finish it, or --redo starts it again"
        )


def _finish(run: "Run", work: Any) -> int:
    """Do the work, then print the summary; a request to stop leaves a run that can be resumed."""
    from dpssl.pipeline import evaluate
    from dpssl.summary import as_text
    from dpssl.training.watch import StopRequested

    with _signals_stop(run) as received:
        try:
            work(run)
        except StopRequested:
            print(f"stopped; continue with: dpssl resume {run.folder.folder}", file=sys.stderr)
            return EXIT_SIGNAL + received[-1] if received else 0
        print(as_text(evaluate(run), run.folder))
    return 0


@contextmanager
def _signals_stop(run: "Run") -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM ask the run to stop; yields the signals received."""
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        run.stop()
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C does not wait
            print("\nstopping after this window of steps; press Ctrl-C again to stop at once", file=sys.stderr)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_start(run: "Run") -> None:
    dataset, split, shape = run.dataset, run.split, run.config.backbone
    height, width, n_channels = dataset.images.shape[1:]
    kind = "grey" if n_channels == 1 else "colour"
    print(
        f"{dataset.name}: {len(dataset.images):,} images of {width}x{height}, {kind}, {dataset.n_classes} classes, "
        f"{len(split.labeled)} of them labelled; {len(dataset.test_images):,} more for testing\n"
        f"Wide ResNet-{shape.depth}-{shape.width}, {run.config.labeling.n_lfs} labeling functions, "
        f"{run.config.labeling.steps:,} steps, then {run.config.end_model.end_steps:,} of the end model\n"
        f"run folder: {run.folder.folder}",
        file=sys.stderr,
    )


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        print(f"note: {message}", file=sys.stderr)


# --------------------------------------------------------------------------------------------------------------- flags


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpssl",
        description="Label an image collection from about four labels per class (DP-SSL).",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dpssl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help in (
        ("run", "all three steps: labeling functions, label model, end model (default data: digits, on a CPU)"),
        ("lfs", "step 1 alone: train the labeling functions and write their votes"),
    ):
        command = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        command.add_argument("--out", help="new run folder; default: the next free one under runs/")
        command.add_argument("--preset", choices=preset_names(), help="settings to start from")
        command.add_argument("--config", help="TOML file with settings, such as a run's config.toml")
        _add_settings(command)
    help = "step 2 alone: soft labels from the votes of a run or of a file"
    label = commands.add_parser("label", help=help, description=help, allow_abbrev=False)
    label.add_argument("source", metavar="RUN|VOTES", help="a run folder, or votes as .npz, .npy, .csv or .parquet")
    label.add_argument("--labels", help="for a file of votes: .csv with the columns id and label, for rows you know")
    label.add_argument("--out", help="for a file of votes: folder to write the soft labels to")
    label.add_argument("--redo", action="store_true", help=REDO_HELP)
    _add_settings(label, ("run", *STEP_SECTIONS["label"]))
    for name, help, sections in (
        ("train", "step 3 alone: train the end model on a run's soft labels", ("run", *STEP_SECTIONS["train"])),
        ("evaluate", "score a run's labels and end model, and write summary.json", ("run",)),
        ("resume", "finish a run that was stopped, from its last checkpoint", None),
    ):
        command = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        command.add_argument("source", metavar="RUN", help="a run folder")
        if name == "train":
            command.add_argument("--redo", action="store_true", help=REDO_HELP)
        _add_settings(command, sections)
    return parser


class _Collect(argparse.Action):
    """Gather the settings given as flags in one dictionary, so that only they override the preset."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        namespace.set = {**namespace.set, self.dest: values}


def _add_settings(command: argparse.ArgumentParser, sections: Sequence[str] | None = None) -> None:
    command.set_defaults(set={})
    groups: dict[str, Any] = {}
    for entry in options():
        if sections is not None and entry.section not in sections:
            continue
        if entry.section not in groups:
            groups[entry.section] = command.add_argument_group(entry.section)
        shown = " ".join(map(str, entry.default)) if isinstance(entry.default, tuple) else entry.default
        groups[entry.section].add_argument(
            flag(entry.name),
            action=_Collect,
            dest=entry.name,
            nargs="+" if isinstance(entry.default, tuple) else None,
            default=argparse.SUPPRESS,
            metavar=entry.metavar,
            help=f"{entry.help} (default: {shown})".replace("%", "%%"),
        )

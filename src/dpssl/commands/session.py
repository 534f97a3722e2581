"""What commands over a run folder share: opening a run with flags, stopping on a signal, the summary at the end."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dpssl.commands.report import report_or_note
from dpssl.config import DP_SSL, WIDE_RESNET, BackboneConfig, flag, options, settings_that_matter, with_values
from dpssl.errors import RunFolderError
from dpssl.stop_signals import heeded

if TYPE_CHECKING:
    from dpssl.runs import Run

EXIT_SIGNAL = 128  # plus the signal's number is what a shell reports for a program ended by it
STEP_SECTIONS = {"label": ("label_model",), "train": ("end_model", "optim", "augment")}  # what a step may change


def open_for(chosen: dict[str, Any], command: str) -> "Run":
    """An existing run. Flags may change what the step may choose freely; anything else would make it another run."""
    from dpssl import checks, runs
    from dpssl.training.distributed import on_writer
    from dpssl.training.precision import pick_device

    run = runs.open_run(chosen["source"], writes=command != "evaluate")
    if command in STEP_SECTIONS and run.config.baseline.method != DP_SSL:
        raise RunFolderError(
            f"{chosen['source']}: was trained by `dpssl fit --method {run.config.baseline.method}`, which has no step "
            f"`{command}`; `dpssl resume` finishes it"
        )
    if command in STEP_SECTIONS and run.config.has_second_run:
        place = chosen["source"]
        raise RunFolderError(f"{place}: its two runs are not combined yet; finish it with `dpssl resume {place}`")
    given = _without_repeated(chosen["set"], run) if command == "resume" else chosen["set"]
    changed = with_values(run.config, given)
    free = {entry.name for entry in options() if entry.section in STEP_SECTIONS.get(command, ())}
    before, after = settings_that_matter(run.config), settings_that_matter(changed)
    for name in before:
        if before[name] != after[name] and name not in free:
            raise RunFolderError(
                f"{flag(name)} {after[name]!r}: this run was started with {before[name]!r}; "
                "leave the flag out, or start a new run with another --out"
            )
    checks.check(changed)  # before anything is removed
    checks.check_settled(changed)
    checks.check_on_data(changed, run.dataset, run.split)
    if command == "evaluate":
        runs.use_config(run, changed)
        return run
    if command != "label":  # which runs no network
        pick_device(changed.run.device)
    if command in STEP_SECTIONS:
        on_writer(lambda: _make_room(run, command, chosen["redo"], other_settings=before != after))
    if changed != run.config:
        runs.change_config(run, changed)
    return run


def _without_repeated(given: dict[str, Any], run: "Run") -> dict[str, Any]:
    """The flags but those that a run with a second opinion was started with: it has gone on to settings of its own."""
    from dpssl.second_opinion import asked_config

    asked = asked_config(run)
    if asked is None:
        return given
    before, after = settings_that_matter(asked), settings_that_matter(with_values(asked, given))
    return {name: value for name, value in given.items() if name not in before or before[name] != after[name]}


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


def finish(run: "Run", work: "Callable[[Run], object]") -> int:
    """Do the work, then print the summary; a request to stop leaves a run that can be resumed."""
    from dpssl.pipeline import evaluate
    from dpssl.plan import was_too_short
    from dpssl.summary import as_text
    from dpssl.training.watch import StopRequested

    with _signals_stop(run) as received:
        try:
            work(run)
        except StopRequested:
            if run.writes:
                print(f"stopped; continue with: dpssl resume {run.folder.folder}", file=sys.stderr)
                if run.config.run.max_minutes:
                    print("  for as long again; with --max-minutes 0 to its end", file=sys.stderr)
            return EXIT_SIGNAL + received[-1] if received else 0
        summary = evaluate(run)
        if run.writes:
            is_short = was_too_short(run.folder, run.config, max(run.dataset.images.shape[1:3]))
            few_steps = run.config.labeling.steps if is_short else 0
            print(as_text(summary, run.folder, run.config.augment.zoom, few_steps))
            if run.config.run.report:
                report_or_note(run)
    return 0


@contextmanager
def _signals_stop(run: "Run") -> Iterator[list[int]]:
    """Ctrl-C, SIGTERM and a closed terminal ask the run to stop; yields the signals received."""
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        run.stop()
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C does not wait
            if run.writes:
                print("\nstopping as soon as it can be resumed; press Ctrl-C again to stop at once", file=sys.stderr)

    with heeded(stop):
        yield received


def network_name(shape: BackboneConfig) -> str:
    return f"Wide ResNet-{shape.depth}-{shape.width}" if shape.backbone == WIDE_RESNET else shape.backbone


def say_start(run: "Run") -> None:
    from dpssl.data.split import labels_a_class

    if not run.writes:
        return
    dataset, split, shape = run.dataset, run.split, run.config.backbone
    height, width, n_channels = dataset.images.shape[1:]
    backbone = network_name(shape)
    kind = "grey" if n_channels == 1 else "colour"
    method, steps = run.config.baseline.method, run.config.labeling.steps
    work = f"{method} for {steps:,} steps"
    if method == DP_SSL:
        work = (
            f"{run.config.labeling.n_lfs} labeling functions, {steps:,} steps, "
            f"then {run.config.end_model.end_steps:,} of the end model"
        )
        if run.config.end_model.has_own_network:
            work += f" (a {network_name(run.config.end_backbone)})"
    if run.config.has_second_run:
        work += f"; then {run.config.second_run.second_method}, then a run that learns from both"
    if dataset.origin.statement:
        print(dataset.origin.statement, file=sys.stderr)
    if dataset.origin.damaged:
        print(
            f"note: {len(dataset.origin.damaged):,} damaged image files are left out: see damaged.csv", file=sys.stderr
        )
    for note in dataset.origin.notes:
        print(f"note: {note}", file=sys.stderr)
    print(
        f"{dataset.name}: {len(dataset.images):,} images of {width}x{height}, {kind}, {dataset.n_classes} classes, "
        f"{len(split.labeled)} of them labelled, {labels_a_class(dataset, split)}; "
        f"{len(dataset.test_images):,} more for testing\n"
        f"{backbone}, {work}\n"
        f"run folder: {run.folder.folder}",
        file=sys.stderr,
    )

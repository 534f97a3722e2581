"""A run with a second opinion (`--second-method`): two runs inside its folder, and then one that learns from both.

Comes in: a run that was just started, or any part of what follows. In its folder `start` there are `first`, a run by
its own settings, and `second`, one by another system on the same images and labels, from the same warm start. Both are
run folders like any other. What they say together becomes what this run starts from, as `dpssl combine` would have it
(dpssl.combine), and its own three steps follow.
"""

import dataclasses
import shutil
import sys
from contextlib import ExitStack

from dpssl import pipeline
from dpssl.combine import combine_inside, describe_start
from dpssl.config import DP_SSL, Config, alone, combined_config, second_config
from dpssl.config_file import CONFIG, read_config
from dpssl.pipeline import evaluate
from dpssl.run_folder import START, RunFolder
from dpssl.runs import Run, derive_run
from dpssl.warm_start import BACKBONE

FIRST, SECOND = "first", "second"


def run_all(run: Run) -> None:
    """Every step that is not done yet, those of the runs inside it among them."""
    if run.config.has_second_run:  # config.toml says so until both are heard
        with ExitStack() as locks:
            _hear_both(run, locks)
    pipeline.run_all(run)


def asked_config(run: Run) -> Config | None:
    """The settings that a run with a second opinion was started with, once it has gone on to learn from both."""
    inside = RunFolder(run.folder.path(START))
    return read_config(inside)[0] if inside.has(CONFIG) else None


def _hear_both(run: Run, locks: ExitStack) -> None:
    asked, steps = run.config, run.config.labeling.steps
    _say(run, f"First of 2 runs: {DP_SSL}, {steps:,} steps")
    first = _finished(run, FIRST, alone(asked), locks)
    _say(run, f"Second of 2 runs: {asked.second_run.second_method}, {steps:,} steps")
    second = _finished(run, SECOND, second_config(asked), locks, like=first)
    combine_inside(run, (first, second), combined_config(asked))
    _say(run, "\n".join([f"Both combined: {run.config.labeling.steps:,} steps", *describe_start(run)]))


def _finished(run: Run, name: str, config: Config, locks: ExitStack, like: Run | None = None) -> Run:
    """The run inside `run`, with all of its steps done. It stops with it, and within its minutes."""
    inner = _opened(run, name, config, like)
    if inner.lock is not None:
        locks.enter_context(inner.lock)  # nobody changes it before it is heard
    inner.started = run.started
    run.part = inner
    inner.stop_requested |= run.stop_requested  # a signal from now on reaches both
    try:
        pipeline.run_all(inner)
        evaluate(inner)
    finally:
        run.part = None
    return inner


def _opened(run: Run, name: str, config: Config, like: Run | None) -> Run:
    """The run inside `run`, where it has begun, else a new one, with the warm start of `like`."""
    folder, split = RunFolder(run.folder.path(f"{START}/{name}")), run.split.without_trust()
    if folder.has(CONFIG):
        config, environment = read_config(folder)
        now = dataclasses.replace(run.config.run, repeat=config.run.repeat)  # a resumed run may have another limit
        config = dataclasses.replace(config, run=now)
        return Run(folder, config, run.dataset, split, environment, folder.lock(), run.progress)
    shutil.rmtree(folder.folder, ignore_errors=True)  # what a kill left of its beginning

    def prepare(inner: RunFolder) -> None:
        if like is not None and like.folder.has(BACKBONE):
            shutil.copyfile(like.folder.path(BACKBONE), inner.path(BACKBONE))

    return derive_run(run, config, (run.dataset, split), str(folder.folder), prepare)


def _say(run: Run, line: str) -> None:
    if run.progress:
        print(line, file=sys.stderr, flush=True)

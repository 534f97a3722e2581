"""Settings that wait for the data: a preset by the size of the images, and a plan that fits `--max-minutes`.

Flags, a `--config` file and a named `--preset` are never overruled. Whatever is chosen is stated, and stands in
config.toml like any other setting.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpssl.commands.session import network_name
from dpssl.config import (
    DP_SSL,
    NO_METHOD,
    SMALL_PRESET,
    WIDE_RESNET,
    Config,
    config_file_values,
    default_preset,
    flag,
    preset_values,
    with_values,
)
from dpssl.errors import InputError

if TYPE_CHECKING:
    from dpssl.data.split import Split
    from dpssl.data.table import Dataset
    from dpssl.plan import Plan

OF_THE_DATA = ("data", "n_labels", "threads")  # a preset's words about its own data and machine


def adapted(
    chosen: dict[str, Any], *, plans: bool = False, started: float = 0.0
) -> "Callable[[Config, Dataset, Split], Config]":
    """What `dpssl.runs.start_run` asks once the data are read. `plans`: the command trains all three steps.

    The minutes count from `started`.
    """
    given = given_names(chosen)

    def adapt(config: Config, dataset: "Dataset", split: "Split") -> Config:
        asked = config.data.labels_per_class * dataset.n_classes or config.data.n_labels
        if {"n_labels", "labels_per_class"}.intersection(chosen["set"]) and len(split.labeled) != asked:
            _say(f"note: the {len(split.labeled):,} labels you gave are used; a number of labels is for sets with all")
        side = max(dataset.images.shape[1:3])
        preset = None if chosen["preset"] else default_preset(config.data.data, side)
        if preset is not None and config.data.data != SMALL_PRESET:  # which has had its settings from the beginning
            config = _with_free(config, preset_values(preset), (*given, *OF_THE_DATA))
            _say(f"images of {side} pixels: the settings of preset {preset}, where none are given")
        _refuse_idle_flags(chosen, config)
        if not (plans and config.baseline.method == DP_SSL and config.backbone.backbone == WIDE_RESNET):
            return with_values(config, {"plan": False})
        plans_steps = config.run.max_minutes and config.run.plan and "steps" not in given
        if plans_steps and config.has_second_run:
            _say("note: with --second-method, --max-minutes stops the run and chooses nothing; `dpssl resume` goes on")
        elif plans_steps:
            return _planned(config, given, dataset, split, started, has_preset=preset == SMALL_PRESET)
        if not config.run.max_minutes:
            _warn_of_hours(config, dataset, split)
        return with_values(config, {"plan": False})

    return adapt


def given_names(chosen: dict[str, Any]) -> frozenset[str]:
    """The settings that somebody decided on: by flag, config file or preset."""
    named = config_file_values(chosen["config"]) if chosen["config"] else {}
    preset = preset_values(chosen["preset"]) if chosen["preset"] else {}
    return frozenset({*chosen["set"], *named, *preset})


def _refuse_idle_flags(chosen: dict[str, Any], config: Config) -> None:
    """Of a run that learns from two, where there will be none."""
    for name in ("combined_steps", "combined_end_steps"):
        if name in chosen["set"] and not config.has_second_run:
            raise InputError(f"{flag(name)} {chosen['set'][name]}: only with --second-method, for example fixmatch")


def _planned(
    config: Config, given: frozenset[str], dataset: "Dataset", split: "Split", started: float, has_preset: bool
) -> Config:
    import torch

    from dpssl.calibrate import seconds_per_image
    from dpssl.plan import CPU_RUNGS, GPU_RUNGS, Rung, make_plan
    from dpssl.training.distributed import share
    from dpssl.training.precision import pick_device

    if share().size > 1:  # each would measure another time
        return with_values(config, {"plan": False})
    device = pick_device(config.run.device)
    rungs = (Rung({}, 0),) if has_preset else CPU_RUNGS if device.type == "cpu" else GPU_RUNGS
    if config.data.image_size or not dataset.origin.decoding:  # arrays are taken as they are
        given = given | {"image_size"}
    plan = make_plan(
        config,
        given,
        n_images=len(dataset.images) + len(dataset.test_images),
        side=max(dataset.images.shape[1:3]),
        seconds=60 * config.run.max_minutes - (time.monotonic() - started),
        rungs=rungs,
        seconds_per_image=lambda tried, side: seconds_per_image(
            tried, dataset.images, split.given_labels, side, device
        ),
    )
    n_threads = torch.get_num_threads()
    on_cpu = f"{n_threads} CPU thread{'s' if n_threads > 1 else ''}"
    where = on_cpu if device.type == "cpu" else torch.cuda.get_device_name()
    _say(state_plan(plan, where, max(dataset.images.shape[1:3])))
    if device.type == "cpu" and plan.has_few_steps:
        _say(
            f"warning: {plan.config.labeling.steps:,} steps are few: simple pictures may come out well, photographs "
            "hardly will; look at report.html before you trust the labels. A GPU is the honest answer: "
            "an H200 does 20,000 steps of a Wide ResNet-28-2 at 32 pixels in some four minutes"
        )
    return with_values(plan.config, {"plan": not plan.leaves_time})


def state_plan(plan: "Plan", where: str, side: int) -> str:
    """The plan in two lines."""
    config = plan.config
    lfs = config.labeling
    warm = f"{config.n_warm_steps:,} steps of a warm start, " if config.n_warm_steps else ""
    return (
        f"plan for {config.run.max_minutes:g} minutes on {where}: {network_name(config.backbone)} at "
        f"{config.data.image_size or side} pixels, {lfs.n_lfs} labeling functions,\n"
        f"  {warm}{lfs.steps:,} steps of {lfs.batch_size} + {lfs.batch_size * lfs.unlabeled_ratio} images, then "
        f"{config.end_model.end_steps:,} of the end model; training takes about {plan.seconds / 60:.1f} minutes"
    )


def _warn_of_hours(config: Config, dataset: "Dataset", split: "Split") -> None:
    """A network made for a GPU takes days on a CPU: say so before they have passed."""
    from dpssl.calibrate import hours_ahead
    from dpssl.training.precision import pick_device

    if told := hours_ahead(config, dataset.images, split.given_labels, pick_device(config.run.device)):
        one_run = f"--second-method {NO_METHOD} " if config.has_second_run else ""
        _say(
            f"warning: at the pace of its first steps this takes about {told} on a CPU; a GPU is made for it. "
            f"{one_run}--max-minutes 30 chooses a network and steps that fit half an hour"
        )


def _with_free(config: Config, values: dict[str, Any], given: tuple[str, ...]) -> Config:
    return with_values(config, {name: value for name, value in values.items() if name not in given})


def _say(line: str) -> None:
    from dpssl.training.distributed import is_writer

    if is_writer():
        print(line, file=sys.stderr)

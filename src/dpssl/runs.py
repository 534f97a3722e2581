"""A run: its folder, its configuration and its data. Starting one, opening one, and changing its settings.

What a step needs to know about the others is in the folder: a finished step by its files, a half-done one by its
checkpoints, the settings all of them were made with in progress.json.
"""

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from dpssl import __version__
from dpssl.config import Config, from_toml, options, to_toml
from dpssl.data.readers import load_dataset
from dpssl.data.split import Split, make_split, split_from_json, split_to_json
from dpssl.data.table import Dataset
from dpssl.errors import InputError, RunFolderError
from dpssl.label_model import VARIANTS
from dpssl.labeling.losses import count_specialists
from dpssl.labeling.train import build_network
from dpssl.run_folder import RunFolder
from dpssl.training.precision import pick_device
from dpssl.training.watch import StopRequested, Watch

CONFIG, SPLIT, PROGRESS = "config.toml", "split.json", "progress.json"
FREE_TO_CHANGE = ("max_minutes", "checkpoint_minutes", "device", "threads")  # without changing what a run computes


@dataclass
class Run:
    """An open run: its folder, its configuration and its data."""

    folder: RunFolder
    config: Config
    dataset: Dataset
    split: Split
    progress: bool = True
    started: float = field(default_factory=time.monotonic)
    watch: Watch | None = None  # of the step that trains now
    stop_requested: bool = False

    @property
    def device(self) -> torch.device:
        return pick_device(self.config.run.device)

    def minutes(self) -> dict[str, float]:
        """Minutes of each finished step."""
        return dict(self.folder.read_json(PROGRESS)["minutes"]) if self.folder.has(PROGRESS) else {}

    def note_progress(self, minutes: dict[str, float]) -> None:
        """Minutes of each finished step, and the settings they were made with, for whoever resumes."""
        self.folder.write_json(PROGRESS, {"minutes": minutes, "settings": settings_that_matter(self.config)})

    @property
    def device_name(self) -> str:
        return _device_name(self.device)

    @contextmanager
    def step(self, name: str) -> Iterator[Watch]:
        """Time a step, give it its watch, and note its minutes when it is done."""
        if self.stop_requested:
            raise StopRequested(name)
        limits = self.config.run
        spent = (time.monotonic() - self.started) / 60
        self.watch = Watch(
            self.folder.folder,
            settings_that_matter(self.config),
            max_minutes=max(1e-6, limits.max_minutes - spent) if limits.max_minutes else 0.0,
            checkpoint_minutes=limits.checkpoint_minutes,
            progress=self.progress,
        )
        try:
            yield self.watch
            self.note_progress({**self.minutes(), name: round(self.watch.minutes(), 4)})
        finally:
            self.watch = None

    def stop(self) -> None:
        """Ask the run to stop, with a checkpoint, after the window of training or before the next step."""
        self.stop_requested = True
        if self.watch is not None:
            self.watch.stop_requested = True


def start_run(config: Config, out: str | None = None, *, progress: bool = True) -> Run:
    """Read the data, split it, and write both decisions into a new folder. Bad input fails before it is made."""
    check(config)
    _use_threads(config)
    dataset, split = _split(config)
    run = Run(RunFolder.create(out), config, dataset, split, progress)
    _write_config(run)  # first: a folder with a config can be resumed, everything else follows from it
    run.folder.write_json(SPLIT, split_to_json(dataset, split))
    return run


def change_config(run: Run, config: Config) -> None:
    """Go on with other settings, which `check` has passed."""
    run.config = config
    _use_threads(config)
    _write_config(run)


def _write_config(run: Run) -> None:
    """The whole resolved configuration, and what it ran on, into config.toml."""
    run.folder.write_text(CONFIG, to_toml(run.config) + _environment(run.config))
    run.note_progress(run.minutes())


def _split(config: Config) -> tuple[Dataset, Split]:
    dataset = load_dataset(config.data.data, config.data.labels)
    return make_split(dataset, config.data.n_labels, config.run.seed, config.data.test_fraction)


def open_run(path: str | Path, *, progress: bool = True) -> Run:
    """The run in an existing folder, with the configuration it was started with."""
    folder = RunFolder.open(path)
    if not folder.has(CONFIG):
        raise RunFolderError(
            f"{path}: holds no {CONFIG}, so there is nothing to resume; start a run with another --out"
        )
    config = from_toml(folder.read_text(CONFIG), source=str(folder.path(CONFIG)))
    _require_unedited(folder, config)
    _use_threads(config)
    if folder.has(SPLIT):
        dataset = load_dataset(config.data.data, config.data.labels)
        dataset, split = split_from_json(dataset, folder.read_json(SPLIT))
    else:  # killed as it was started
        dataset, split = _split(config)
        folder.write_json(SPLIT, split_to_json(dataset, split))
    return Run(folder, config, dataset, split, progress)


def _require_unedited(folder: RunFolder, config: Config) -> None:
    """Finished steps keep no checkpoint that would tell which settings made them: progress.json does."""
    if not folder.has(PROGRESS):
        return
    before, now = folder.read_json(PROGRESS)["settings"], settings_that_matter(config)
    for name in before:
        if now.get(name) != before[name]:
            raise RunFolderError(
                f"{folder.path(CONFIG)}: {name} is {now.get(name)!r}, but the run was started with {before[name]!r}; "
                "undo the edit, or start a new run with this file as --config and another --out"
            )


def check(config: Config) -> None:
    """What would otherwise fail only after minutes of training."""
    if config.labeling.mcl:
        count_specialists(config.labeling.n_lfs, config.labeling.specialist_ratio)
    with torch.device("meta"):  # the shapes alone
        build_network(config, n_classes=2, n_channels=1)
    n_lfs, label_model = config.labeling.n_lfs, config.label_model.label_model
    if label_model not in VARIANTS:
        raise InputError(f"--label-model {label_model!r}: choose one of {', '.join(VARIANTS)}")
    if label_model in ("paper", "triplet") and n_lfs < 3:
        raise InputError(
            f"--n-lfs {n_lfs}: --label-model {label_model} solves triplets, which need 3 LFs or more; "
            "raise --n-lfs or choose --label-model majority"
        )
    pick_device(config.run.device)


def _use_threads(config: Config) -> None:
    if config.run.threads:
        torch.set_num_threads(config.run.threads)


def _environment(config: Config) -> str:
    lines = {
        "dpssl": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": _device_name(pick_device(config.run.device)),
    }
    return "\n[environment]\n" + "".join(f'{name} = "{value}"\n' for name, value in lines.items())


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"


def settings_that_matter(config: Config) -> dict[str, Any]:
    """Every setting that decides what a run computes, as JSON values."""
    values = {entry.name: getattr(getattr(config, entry.section), entry.name) for entry in options()}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if name not in FREE_TO_CHANGE
    }

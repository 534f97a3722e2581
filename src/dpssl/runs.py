"""A run: its folder, its configuration and its data. Starting one, opening one, and changing its settings.

What a step needs to know about the others is in the folder: a finished step by its files, a half-done one by its
checkpoints, the settings all of them were made with in config.toml, which carries a checksum of them.
"""

import math
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch

from dpssl import __version__
from dpssl.baselines.registry import as_given, method_settings
from dpssl.checks import check, check_on_data, check_settled
from dpssl.config import FROM_CACHE, Config, settings_that_matter, with_values
from dpssl.config_file import CONFIG, read_config, write_config
from dpssl.data.identity import describe_images, place_of_images, require_same_images
from dpssl.data.readers import load_dataset
from dpssl.data.split import Split, ids_in_json, split_as_asked, split_from_json, split_to_json
from dpssl.data.table import Dataset
from dpssl.errors import RunFolderError
from dpssl.nets.backbones import check_backbone
from dpssl.plan import minutes_for_step, seconds_to_train
from dpssl.run_folder import SPLIT, RunFolder
from dpssl.step_files import damaged_files, damaged_table
from dpssl.training.distributed import anyone, is_writer, on_writer, share, writer_first
from dpssl.training.precision import pick_device
from dpssl.training.watch import StopRequested, Watch

IMAGES, PROGRESS = "images.json", "progress.json"
GIVEN_LABELS = "given_labels"  # and the suffix of the table
DAMAGED = "damaged.csv"
Adapt = Callable[[Config, Dataset, Split], Config]  # the settings, when the data are known


@dataclass
class Run:
    """An open run: its folder, its configuration and its data."""

    folder: RunFolder
    config: Config
    dataset: Dataset
    split: Split
    environment: dict[str, str]  # versions, and the device that networks were last trained on
    lock: IO[str] | None = None  # held as long as it is open
    progress: bool = True
    started: float = field(default_factory=time.monotonic)
    watch: Watch | None = None  # of the step that trains now
    part: "Run | None" = None  # a run inside this one, while it is at work
    stop_requested: bool = False
    is_new: bool = False  # started by this command; one that is resumed keeps to the steps it had

    @property
    def device(self) -> torch.device:
        return pick_device(self.config.run.device)

    @property
    def has_device(self) -> bool:
        """Whether the device that the run asks for is here."""
        return self.config.run.device != "cuda" or torch.cuda.is_available()

    @property
    def writes(self) -> bool:
        """Whether this process keeps the folder: the only one does, or the first of several that train together."""
        return is_writer()

    def has(self, name: str) -> bool:
        """Whether the folder holds this file, the same answer in every process."""
        return bool(on_writer(lambda: self.folder.has(name)))

    def minutes(self) -> dict[str, float]:
        """Minutes of each finished step."""
        return dict(self.folder.read_json(PROGRESS)["minutes"]) if self.folder.has(PROGRESS) else {}

    def note_minutes(self, minutes: dict[str, float]) -> None:
        if minutes != self.minutes():
            self.folder.write_json(PROGRESS, {"minutes": minutes})

    @contextmanager
    def step(self, name: str) -> Iterator[Watch]:
        """Time a step, give it its watch, and note its minutes when it is done."""
        if anyone(self.stop_requested):
            raise StopRequested(name)
        limits = self.config.run
        spent = (time.monotonic() - self.started) / 60
        due = math.inf
        if self.is_new and limits.plan and limits.max_minutes and share().size == 1:  # several must agree on steps
            left = seconds_to_train(60 * limits.max_minutes) / 60 - spent
            due = minutes_for_step(self.config, len(self.dataset.images), name, left)
        self.watch = Watch(
            self.folder.folder if self.writes else None,
            settings_that_matter(self.config),
            max_minutes=max(1e-6, limits.max_minutes - spent) if limits.max_minutes else 0.0,
            due_minutes=due,
            checkpoint_minutes=limits.checkpoint_minutes,
            progress=self.progress,
            track=limits.track,
        )
        self.watch.stop_requested |= self.stop_requested  # a signal may have come before there was a watch to tell
        try:
            yield self.watch
            taken = round(self.watch.minutes(), 4)
            on_writer(lambda: self.note_minutes({**self.minutes(), name: taken}))  # the others wait for its files
        finally:
            self.watch.log.close()
            self.watch = None

    def stop(self) -> None:
        """Ask the run to stop, with a checkpoint, as soon as training allows or before the next step."""
        self.stop_requested = True
        if self.watch is not None:
            self.watch.stop_requested = True
        if self.part is not None:
            self.part.stop()


def start_run(
    config: Config,
    out: str | None = None,
    *,
    adapt: Adapt | None = None,
    started: float | None = None,
    progress: bool = True,
) -> Run:
    """Read the data, split it, and write both decisions into a new folder. Bad input fails before it is made.

    `adapt` may change the settings when it has seen the data; minutes count from `started` (time.monotonic()).
    """
    started = time.monotonic() if started is None else started
    config = _with_all_method_settings(_with_absolute_paths(config))
    everything, dataset, split = _read(config, progress)
    if adapt is not None:
        adapted = adapt(config, dataset, split)
        if adapted.data != config.data:  # image files at another size
            everything, dataset, split = _read(adapted, progress)
        config = adapted
        check(config)
        use_threads(config)
    check_settled(config)
    environment = _environment(config)
    folder = RunFolder(Path(on_writer(lambda: str(RunFolder.create(out).folder))))
    if not is_writer():
        return Run(folder, config, dataset, split, environment, progress=False, started=started, is_new=True)
    run = Run(folder, config, dataset, split, environment, folder.lock(), progress, started, is_new=True)
    # config.toml first: a folder that has it can be resumed, everything else follows from it
    write_config(folder, config, environment)
    _note_images(folder, everything, describe_images(config.data.data, everything))
    _keep_label_table(folder, config.data.labels)
    folder.write_json(SPLIT, split_to_json(dataset, split))
    return run


def _read(config: Config, progress: bool) -> tuple[Dataset, Dataset, Split]:
    """All the data, those for training and testing, and which are labelled; the settings are checked against them."""
    check(config)
    check_backbone(config.backbone)
    use_threads(config)
    pick_device(config.run.device)  # an error where there is no such device
    everything = writer_first(lambda: _load(config, config.data.data, config.data.labels, progress and is_writer()))
    dataset, split = split_as_asked(everything, config.data, config.run.seed)
    check_on_data(config, dataset, split)
    return everything, dataset, split


def derive_run(
    parent: Run,
    config: Config,
    labels: tuple[Dataset, Split],
    out: str | None,
    prepare: Callable[[RunFolder], None],
) -> Run:
    """A new run on the images of `parent`, with other settings and labels; `prepare` writes what it starts from.

    config.toml comes last: without it a folder that a kill left cannot be resumed as a run of another kind.
    """
    check(config)
    check_settled(config)
    use_threads(config)
    dataset, split = labels
    check_on_data(config, dataset, split)
    environment = _environment(config)
    folder = RunFolder.create(out)
    run = Run(folder, config, dataset, split, environment, folder.lock(), parent.progress)
    _note_images(folder, dataset, parent.folder.read_json(IMAGES))
    _keep_label_table(folder, _label_table(parent.folder, config.data.labels))
    folder.write_json(SPLIT, split_to_json(dataset, split))
    prepare(folder)
    write_config(run.folder, run.config, run.environment)
    return run


def _with_absolute_paths(config: Config) -> Config:
    """Later commands may be given in another folder."""
    given = {"labels": config.data.labels, "backbone_weights": config.backbone.backbone_weights}
    paths = {name: path for name, path in given.items() if path not in ("", FROM_CACHE)}
    return with_values(config, {name: str(Path(path).expanduser().absolute()) for name, path in paths.items()})


def _with_all_method_settings(config: Config) -> Config:
    """config.toml tells all settings that another method was trained with, not only those that were given."""
    method, given = config.method_with_settings, config.baseline.method_settings
    return with_values(config, {"method_settings": as_given(method_settings(method, given))})


def _note_images(folder: RunFolder, dataset: Dataset, description: dict[str, Any]) -> None:
    if dataset.origin.damaged:
        folder.write_text(DAMAGED, damaged_table(dataset.origin.damaged))
    folder.write_json(IMAGES, description)


def _load(config: Config, data: str, labels: str, progress: bool, only: frozenset[str] | None = None) -> Dataset:
    return load_dataset(data, labels, config.data, config.run.threads, progress, only)


def _keep_label_table(folder: RunFolder, labels: str) -> None:
    """A copy of the file that `--labels` names: the run outlives it."""
    if labels:
        shutil.copyfile(labels, folder.path(GIVEN_LABELS + Path(labels).suffix))


def _label_table(folder: RunFolder, labels: str) -> str:
    """Where the table that `--labels` names is now: there, or where it was moved or deleted, in the run folder."""
    kept = folder.path(GIVEN_LABELS + Path(labels).suffix)
    return str(kept) if labels and kept.is_file() and not Path(labels).is_file() else labels


def use_config(run: Run, config: Config) -> None:
    """Go on with other settings, which `check` has passed, without noting them."""
    run.config = config
    use_threads(config)


def change_config(run: Run, config: Config) -> None:
    """Go on with other settings, which `check` has passed. One rename changes settings and checksum together."""
    use_config(run, config)
    if run.writes:
        write_config(run.folder, run.config, run.environment)


def note_environment(run: Run) -> None:
    """A network is trained now: config.toml tells with what."""
    now = _environment(run.config)
    if run.environment != now:
        run.environment = now
        if run.writes:
            write_config(run.folder, run.config, run.environment)


def open_run(path: str | Path, *, writes: bool = True, progress: bool = True) -> Run:
    """The run in an existing folder, with the configuration it was started with.

    One process at a time may open it to write results; `evaluate`, which replaces summary.json alone, needs no turn. Of
    processes that train together the first does, and may have to write what a kill left out before the others read.
    """
    return writer_first(lambda: _open(path, writes and is_writer(), progress and is_writer()))


def _open(path: str | Path, writes: bool, progress: bool) -> Run:
    folder = RunFolder.open(path)
    if not folder.has(CONFIG):
        raise RunFolderError(f"{path}: no run folder, it holds no {CONFIG}; `dpssl run` makes one, with another --out")
    lock = folder.lock() if writes else None
    config, environment = read_config(folder)
    use_threads(config)
    everything = _same_images(folder, config, progress)
    if folder.has(SPLIT):
        dataset, split = split_from_json(everything, folder.read_json(SPLIT))
    else:  # killed as it was started
        dataset, split = split_as_asked(everything, config.data, config.run.seed)
        folder.write_json(SPLIT, split_to_json(dataset, split))
    return Run(folder, config, dataset, split, environment, lock, progress)


def _same_images(folder: RunFolder, config: Config, progress: bool) -> Dataset:
    """The data the run was started with, from wherever the command is given. Files that were added are passed over."""
    data = config.data.data
    recorded = folder.read_json(IMAGES) if folder.has(IMAGES) else None
    if recorded is not None:
        data = place_of_images(recorded["data"], data, folder.path(IMAGES))
    dataset = _load(config, data, _label_table(folder, config.data.labels), progress, _known_files(folder))
    found = describe_images(data, dataset)
    if recorded is None:  # killed as it was started
        _note_images(folder, dataset, found)
    else:
        require_same_images(recorded, found, folder.path(IMAGES))
    if dataset.origin.n_passed_over and progress:
        print(
            f"note: image files in {data} that this run was not started with are passed over: "
            f"{dataset.origin.n_passed_over:,}; `dpssl predict {folder.folder} PATH` labels them",
            file=sys.stderr,
        )
    return dataset


def _known_files(folder: RunFolder) -> frozenset[str] | None:
    """Ids of the image files that the run was started with, damaged ones among them; None where nothing tells yet."""
    if not folder.has(SPLIT):
        return None
    damaged = damaged_files(folder.read_text(DAMAGED)) if folder.has(DAMAGED) else ()
    return frozenset(ids_in_json(folder.read_json(SPLIT))).union(damaged)


def use_threads(config: Config) -> None:
    """As many threads of the CPU as the settings name, if they do."""
    if config.run.threads:
        torch.set_num_threads(config.run.threads)


def _environment(config: Config) -> dict[str, str]:
    """What networks are trained with here; an error where there is no such device."""
    device, n_threads = pick_device(config.run.device), torch.get_num_threads()
    on_cpu = f"cpu, {n_threads} thread{'' if n_threads == 1 else 's'}"
    return {
        "dpssl": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else on_cpu,
    }

"""The three steps over a run folder: each reads the files of the one before and leaves its own.

A step whose result is there is not done again, so resuming a run is running it: finished steps are skipped, and the one
that was cut off continues from its checkpoint. Truth is read in `evaluate` alone.
"""

import dataclasses
import platform
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from dpssl import __version__
from dpssl.config import Config, from_toml, options, to_toml
from dpssl.data.batches import ImageBank
from dpssl.data.readers import load_dataset
from dpssl.data.split import Split, make_split, split_from_json, split_to_json
from dpssl.data.table import Dataset
from dpssl.end_model.predict import embed, predict_probabilities
from dpssl.end_model.train import STAGE as STAGE_END
from dpssl.end_model.train import build_classifier, train_end_model
from dpssl.errors import InputError, RunFolderError
from dpssl.label_model import VARIANTS, LabelModel, covered
from dpssl.labeling.losses import count_specialists
from dpssl.labeling.train import STAGE_MCL, STAGE_SSL, build_network, train_lfs
from dpssl.labeling.vote import cast_votes, feature_diagnostics
from dpssl.nets.classifier import Classifier
from dpssl.run_folder import RunFolder
from dpssl.step_files import VoteFile
from dpssl.summary import summarize
from dpssl.training.precision import pick_device
from dpssl.training.watch import StopRequested, Watch

CONFIG, SPLIT, VOTES, SOFT_LABELS = "config.toml", "split.json", "votes.npz", "soft_labels.npz"
LF_MODEL, LABEL_MODEL, END_MODEL = "lf_model.safetensors", "label_model.safetensors", "end_model.safetensors"
EMBEDDINGS, SUMMARY, PROGRESS, METRICS = "embeddings.npz", "summary.json", "progress.json", "metrics.jsonl"
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

    def stop(self) -> None:
        """Ask the run to stop, with a checkpoint, after the window of training or before the next step."""
        self.stop_requested = True
        if self.watch is not None:
            self.watch.stop_requested = True


# ---------------------------------------------------------------------------------------------- starting and opening


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


# ----------------------------------------------------------------------------------------------------------- the steps


def run_all(run: Run) -> dict[str, Any]:
    """Every step that is not done yet, then the summary."""
    train_labeling_functions(run)
    resolve_votes(run)
    train_classifier(run)
    return evaluate(run)


RESULTS = {"label": (SOFT_LABELS, "soft_labels.csv", LABEL_MODEL), "train": (END_MODEL, EMBEDDINGS)}
STAGES = {"lfs": (STAGE_MCL, STAGE_SSL), "label": (), "train": (STAGE_END,)}


def is_half_done(run: Run, step: str) -> bool:
    """Whether `step` was stopped and has a checkpoint to continue from."""
    return not run.folder.has(RESULTS[step][0]) and any(map(Watch(run.folder.folder).has_checkpoint, STAGES[step]))


def forget(run: Run, step: str) -> None:
    """Remove what `step` made and everything made from it, so that it can be done again."""
    {"label": run.folder.read_votes, "train": run.folder.read_soft_labels}[step]()  # fails where it cannot be
    steps = list(RESULTS)[list(RESULTS).index(step) :]
    for name in [SUMMARY, *(name for each in steps for name in RESULTS[each])]:
        run.folder.path(name).unlink(missing_ok=True)
    for each in steps:
        _clear_checkpoints(run, each)
    run.note_progress({name: minutes for name, minutes in run.minutes().items() if name not in steps})


def _clear_checkpoints(run: Run, step: str) -> None:
    for stage in STAGES[step]:
        Watch(run.folder.folder).clear(stage)


def train_labeling_functions(run: Run) -> None:
    """Step 1: images and few labels -> votes.npz (and the network, in lf_model.safetensors)."""
    if run.folder.has(VOTES):
        return _clear_checkpoints(run, "lfs")
    bank = _bank(run)
    with _Step(run, "lfs") as watch:
        network = train_lfs(bank, torch.from_numpy(run.split.given_labels), run.dataset.n_classes, run.config, watch)
        found = cast_votes(network, bank)
        watch.log.rewind("votes", -1)
        watch.log.write("votes", 0, feature_diagnostics(network, bank))
        run.folder.write_safetensors(LF_MODEL, network.state_dict(), {"network": "dpssl LFNetwork"})
        run.folder.write_votes(
            VoteFile(found.votes, found.confidence, found.specialties, run.dataset.ids, run.dataset.class_names)
        )
    _clear_checkpoints(run, "lfs")


def resolve_votes(run: Run) -> None:
    """Step 2: votes.npz and the given labels -> soft_labels.npz, soft_labels.csv and label_model.safetensors."""
    if run.folder.has(SOFT_LABELS):
        return
    with _Step(run, "label"):
        file, settings = run.folder.read_votes(), run.config.label_model
        model = LabelModel(run.dataset.n_classes, settings.label_model)
        sees_confidence = settings.use_confidence and VARIANTS[settings.label_model].uses_confidence
        confidence = file.confidence if sees_confidence else None
        model.fit(file.votes, run.split.given_labels, confidence=confidence, specialties=file.specialties)
        soft_labels = model.predict_proba(file.votes, confidence)
        model.save(run.folder.path(LABEL_MODEL))
        run.folder.write_soft_labels(file.ids, file.class_names, soft_labels, covered(file.votes))


def train_classifier(run: Run) -> None:
    """Step 3: images, given labels and soft labels -> end_model.safetensors and embeddings.npz."""
    if run.folder.has(END_MODEL):
        return _clear_checkpoints(run, "train")
    bank, file = _bank(run), run.folder.read_soft_labels()
    with _Step(run, "train") as watch:
        network = train_end_model(
            bank,
            torch.from_numpy(run.split.given_labels),
            torch.from_numpy(file.soft_labels),
            torch.from_numpy(file.covered),
            run.config,
            watch,
            backbone_start=_lf_backbone(run) if run.config.end_model.end_start == "lfs" else None,
        )
        run.folder.write_arrays(EMBEDDINGS, ids=run.dataset.ids, embeddings=embed(network, bank).half().numpy())
        run.folder.write_safetensors(
            END_MODEL,
            {**network.state_dict(), "mean": bank.mean, "std": bank.std},
            {"architecture": "wide-resnet", "class_names": list(run.dataset.class_names)}
            | dataclasses.asdict(run.config.backbone)
            | {"n_channels": int(bank.images.shape[1])},
        )
    _clear_checkpoints(run, "train")


def evaluate(run: Run) -> dict[str, Any]:
    """Score what the run has made against the truth, where it is known -> summary.json. Trains and chooses nothing."""
    summary = summarize(run.folder, run.dataset, run.split, _test_probabilities(run))
    summary |= {
        "minutes": round(sum(run.minutes().values()), 3),
        "minutes_per_step": run.minutes(),
        "seed": run.config.run.seed,
        "device": _device_name(run.device),
    }
    run.folder.write_json(SUMMARY, summary)
    return summary


def _test_probabilities(run: Run) -> Any:
    if not run.folder.has(END_MODEL) or len(run.dataset.test_images) == 0:
        return None
    network, bank = load_end_model(run)
    return predict_probabilities(network, bank.with_images(run.dataset.test_images)).numpy()


def load_end_model(run: Run) -> tuple[Classifier, ImageBank]:
    """The trained classifier, and a bank that normalises as it was trained."""
    tensors, _ = run.folder.read_safetensors(END_MODEL)
    mean, std = tensors.pop("mean"), tensors.pop("std")
    network = build_classifier(run.config, run.dataset.n_classes, run.dataset.images.shape[-1])
    network.load_state_dict(tensors)
    empty = torch.empty(0, dtype=torch.uint8, device=run.device)
    return network.to(run.device).eval(), ImageBank(empty, mean.to(run.device), std.to(run.device))


def _lf_backbone(run: Run) -> dict[str, torch.Tensor]:
    tensors, _ = run.folder.read_safetensors(LF_MODEL)
    network = build_network(run.config, run.dataset.n_classes, run.dataset.images.shape[-1])
    network.load_state_dict(tensors)
    return network.backbone.state_dict()


def _bank(run: Run) -> ImageBank:
    return ImageBank.from_numpy(run.dataset.images, run.device)


class _Step:
    """Times a step, gives it its watch, and notes its minutes when it is done."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.name = run, name

    def __enter__(self) -> Watch:
        run, limits = self.run, self.run.config.run
        if run.stop_requested:
            raise StopRequested(self.name)
        spent = (time.monotonic() - run.started) / 60
        run.watch = Watch(
            run.folder.folder,
            settings_that_matter(run.config),
            max_minutes=max(1e-6, limits.max_minutes - spent) if limits.max_minutes else 0.0,
            checkpoint_minutes=limits.checkpoint_minutes,
            progress=run.progress,
        )
        return run.watch

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        watch, self.run.watch = self.run.watch, None
        if kind is None and watch is not None:
            self.run.note_progress({**self.run.minutes(), self.name: round(watch.minutes(), 4)})


def settings_that_matter(config: Config) -> dict[str, Any]:
    """Every setting that decides what a run computes, as JSON values."""
    values = {entry.name: getattr(getattr(config, entry.section), entry.name) for entry in options()}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if name not in FREE_TO_CHANGE
    }

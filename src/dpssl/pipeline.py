"""The three steps over a run folder: each reads the files of the one before and leaves its own.

A step whose result is there is not done again, so resuming a run is running it: finished steps are skipped, and the one
that was cut off continues from its checkpoint. A step that is done removes first what was made from an earlier result
of its own. Truth is read in `evaluate` alone.
"""

from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpssl.audit import knows_its_kinds, pairs_told_apart_by_size, unexplained_kinds
from dpssl.baselines.registry import SYSTEMS
from dpssl.baselines.trainer import STAGE as STAGE_FIT
from dpssl.baselines.trainer import train_baseline
from dpssl.class_prior import alignment_prior, class_prior
from dpssl.config import DP_SSL, BackboneConfig
from dpssl.constants import ABSTAIN
from dpssl.data.batches import ImageBank, unlabeled_pool
from dpssl.data.split import every_known_label
from dpssl.end_model.predict import embed, predict_probabilities
from dpssl.end_model.storage import END_MODEL, is_of_shape, load_end_model, save_end_model
from dpssl.end_model.train import STAGE as STAGE_END
from dpssl.end_model.train import train_end_model
from dpssl.errors import InputError
from dpssl.label_model import LabelModel, confidence_for, covered
from dpssl.label_model.together import common_labels
from dpssl.label_model.votes import chunks
from dpssl.labeling.train import STAGE_MCL, STAGE_SSL, build_network, train_lfs
from dpssl.labeling.vote import cast_votes, feature_diagnostics
from dpssl.nets.classifier import Classifier
from dpssl.run_folder import START
from dpssl.runs import Run, note_environment
from dpssl.step_files import VoteFile
from dpssl.summary import summarize
from dpssl.training.distributed import on_writer, share
from dpssl.training.watch import Watch
from dpssl.warm_start import BACKBONE, train_warm_start
from dpssl.warm_start import STAGE as STAGE_WARM

VOTES, SOFT_LABELS, EMBEDDINGS = "votes.npz", "soft_labels.npz", "embeddings.npz"
PSEUDO_LABELS, SUMMARY, REPORT = "pseudo_labels.npz", "summary.json", "report.html"
LF_MODEL, LABEL_MODEL = "lf_model.safetensors", "label_model.safetensors"
RESULTS = {  # of each step, in order; its first file is written last, and tells that the step is done
    "warm": (BACKBONE,),
    "lfs": (VOTES, LF_MODEL),
    "label": (SOFT_LABELS, "soft_labels.csv", LABEL_MODEL),
    "train": (END_MODEL, EMBEDDINGS),
}
COMMON = "common.npz"  # there: what the runs that are combined say together
ORACLE = "oracle.json"  # marks a run whose label model was fed with the truth (dpssl.paper.oracle)
NORMALISATION = ("mean", "std")  # of the images, beside the weights of an end model
STAGES = {"warm": (STAGE_WARM,), "lfs": (STAGE_MCL, STAGE_SSL), "label": (), "train": (STAGE_END,), "fit": (STAGE_FIT,)}


def run_all(run: Run) -> None:
    """Every step that is not done yet; of another method than DP-SSL, its one."""
    if run.config.baseline.method != DP_SSL:
        return fit_baseline(run)
    train_labeling_functions(run)
    resolve_votes(run)
    train_classifier(run)


def is_half_done(run: Run, step: str) -> bool:
    """Whether `step` was stopped and has a checkpoint to continue from."""
    return not run.folder.has(RESULTS[step][0]) and any(map(Watch(run.folder.folder).has_checkpoint, STAGES[step]))


def forget(run: Run, step: str) -> None:
    """Remove what `step` made and everything made from it, so that it can be done again."""
    {"label": run.folder.read_votes, "train": run.folder.read_soft_labels}[step](run.dataset.ids)  # fails in time
    _remove(run, list(RESULTS)[list(RESULTS).index(step) :])


def _forget_what_follows(run: Run, step: str) -> None:
    """`step` is about to be done: what a later step made from an earlier result of it is stale."""
    _remove(run, list(RESULTS)[list(RESULTS).index(step) + 1 :])


def _remove(run: Run, steps: list[str]) -> None:
    """The last step first: a kill half-way leaves no result whose source is gone."""
    if not run.writes:
        return
    for name in (REPORT, SUMMARY):
        run.folder.path(name).unlink(missing_ok=True)
    for step in reversed(steps):
        for name in RESULTS[step]:
            run.folder.path(name).unlink(missing_ok=True)
        _clear_checkpoints(run, step)
    run.note_minutes({name: minutes for name, minutes in run.minutes().items() if name not in steps})


def _clear_checkpoints(run: Run, step: str) -> None:
    for stage in STAGES[step]:
        Watch(run.folder.folder if run.writes else None).clear(stage)


def train_labeling_functions(run: Run) -> None:
    """Step 1: images and few labels -> votes.npz (and the network, in lf_model.safetensors)."""
    if run.has(VOTES):
        return _clear_checkpoints(run, "lfs")
    bank = _bank(run)
    backbone = _warm_backbone(run, bank)
    _forget_what_follows(run, "lfs")
    with run.step("lfs") as watch:
        labels, prior = torch.from_numpy(run.split.training_labels), run.config.label_model.class_prior
        network = train_lfs(
            bank,
            labels,
            run.dataset.n_classes,
            run.config,
            watch,
            start=_start(run, LF_MODEL),
            backbone_start=backbone,
            class_shares=alignment_prior(prior, run.split.given_labels, run.dataset.n_classes),
        )
        found = cast_votes(network, bank)
        found.votes[run.split.left_out] = ABSTAIN  # nobody may name what belongs to no class
        if run.writes:
            watch.log.rewind("votes", -1)
            watch.log.write("votes", 0, feature_diagnostics(network, bank))
            run.folder.write_safetensors(LF_MODEL, network.state_dict(), {"network": "dpssl LFNetwork"})
            run.folder.write_votes(
                VoteFile(found.votes, found.confidence, found.specialties, run.dataset.ids, run.dataset.class_names)
            )
    _clear_checkpoints(run, "lfs")


def resolve_votes(run: Run) -> None:
    """Step 2: votes.npz and the given labels -> soft_labels.npz, soft_labels.csv and label_model.safetensors."""
    if run.has(SOFT_LABELS):
        return
    with run.step("label") as watch:
        on_writer(lambda: _fit_label_model(run, watch))


def _fit_label_model(run: Run, watch: Watch) -> None:
    file, settings = run.folder.read_votes(run.dataset.ids), run.config.label_model
    _forget_what_follows(run, "label")
    watch.say(f"Step 2 of 3, label model: {settings.label_model}, {len(file.votes):,} images")
    model = LabelModel(run.dataset.n_classes, settings.label_model)
    confidence = confidence_for(settings.label_model, file.confidence) if settings.use_confidence else None
    balance = class_prior(settings.class_prior, run.split.given_labels, run.dataset.n_classes)
    model.fit(file.votes, run.split.given_labels, confidence, file.specialties, class_balance=balance)
    soft_labels, has_votes = _predict_in_parts(model, file.votes, confidence), covered(file.votes)
    model.save(run.folder.path(LABEL_MODEL), soft_labels)
    if run.folder.has(f"{START}/{COMMON}"):
        before = run.folder.read_arrays(f"{START}/{COMMON}", "soft_labels", "n_runs")
        weight = np.stack([before["n_runs"], has_votes])  # this run is one more of them
        soft_labels = common_labels(np.stack([before["soft_labels"], soft_labels]), weight).astype(np.float32)
        has_votes = weight.sum(axis=0) > 0
    run.folder.write_soft_labels(file.ids, file.class_names, soft_labels, has_votes)


def _predict_in_parts(model: LabelModel, votes: NDArray[Any], confidence: NDArray[Any] | None) -> NDArray[np.float32]:
    """Soft labels (n, C) as they are kept: in full precision a million rows of a thousand classes would not fit."""
    n_classes = len(model.classes_)
    soft_labels = np.empty((len(votes), n_classes), dtype=np.float32)
    for rows in chunks(len(votes), max(votes.shape[1], n_classes)):
        soft_labels[rows] = model.predict_proba(votes[rows], None if confidence is None else confidence[rows])
    return soft_labels


def train_classifier(run: Run) -> None:
    """Step 3: images, given labels and soft labels -> end_model.safetensors and embeddings.npz."""
    if run.has(END_MODEL):
        return _clear_checkpoints(run, "train")
    bank, file = _bank(run), run.folder.read_soft_labels(run.dataset.ids)
    backbone = _lf_backbone(run) if run.config.end_model.end_start == "lfs" else _warm_backbone(run, bank)
    _forget_what_follows(run, "train")
    with run.step("train") as watch:
        network = train_end_model(
            bank,
            torch.from_numpy(run.split.training_labels),
            torch.from_numpy(file.soft_labels),
            torch.from_numpy(file.covered),
            run.config,
            watch,
            backbone_start=backbone,
            start=_start(run, END_MODEL, run.config.end_backbone),
        )
        _write_classifier(run, network, bank, run.config.end_backbone)
    _clear_checkpoints(run, "train")


def fit_baseline(run: Run) -> None:
    """Another method in the place of the three steps: the same files, its own predictions as soft labels."""
    if share().size > 1:
        raise InputError(f"torchrun: --method {run.config.baseline.method} trains in one process; start it alone")
    if run.folder.has(END_MODEL):
        return _clear_checkpoints(run, "fit")
    bank = _bank(run)
    backbone = _warm_backbone(run, bank)
    with run.step("fit") as watch:
        labels = run.split.given_labels
        if SYSTEMS[run.config.baseline.method].uses_all_labels:
            watch.say("trains on the class of every image, given or not: a ceiling to compare with, no labelling")
            labels = every_known_label(run.dataset, run.split)
        trained = train_baseline(bank, torch.from_numpy(labels), run.dataset.n_classes, run.config, watch, backbone)
        probabilities = predict_probabilities(trained.network, bank)
        found = trained.system.cpu().pseudo_labels(probabilities, embed(trained.network, bank))
        if found is not None:
            labels, trusted = found[0].numpy(), found[1].numpy()
            run.folder.write_arrays(PSEUDO_LABELS, ids=run.dataset.ids, labels=labels, trusted=trusted)
        every = torch.ones(len(bank), dtype=torch.bool).numpy()
        run.folder.write_soft_labels(run.dataset.ids, run.dataset.class_names, probabilities.numpy(), every)
        _write_classifier(run, trained.network, bank, run.config.backbone)
    _clear_checkpoints(run, "fit")


def _write_classifier(run: Run, network: Classifier, bank: ImageBank, shape: BackboneConfig) -> None:
    embeddings = embed(network, bank).half().numpy()
    if run.writes:
        run.folder.write_arrays(EMBEDDINGS, ids=run.dataset.ids, embeddings=embeddings)
        save_end_model(run.folder, network, bank, run.dataset.class_names, shape)


def evaluate(run: Run) -> dict[str, Any]:
    """Score what the run has made against the truth, where it is known -> summary.json. Trains and chooses nothing.

    The networks are asked too, without truth, whether they tell classes apart by their size, and for kinds of image
    that their class does not explain.
    """
    test_probabilities, told_apart, kinds = None, None, None
    n_test = len(run.dataset.test_images)
    if run.has(END_MODEL) and (n_test or run.has_device):
        memory = run.config.run.image_memory
        told_apart = pairs_told_apart_by_size(run, run.device, memory)
        kinds = _kinds_to_look_at(run)
        if n_test:
            model = load_end_model(run.folder, run.device)
            test = model.bank.with_images(run.dataset.test_images, memory)
            test_probabilities = predict_probabilities(model.network, test).numpy()
    if not run.writes:
        return {}
    summary = summarize(run.folder, run.dataset, run.split, test_probabilities)
    summary |= {
        "told_apart_by_size": told_apart,
        "unexplained_kinds": kinds,
        "minutes": round(sum(run.minutes().values()), 3),
        "minutes_per_step": run.minutes(),
        "method": run.config.baseline.method,
        "seed": run.config.run.seed,
        "repeat": run.config.run.repeat,
        "device": run.environment.get("device"),
    }
    run.folder.write_json(SUMMARY, summary)
    return summary


def _kinds_to_look_at(run: Run) -> list[dict[str, Any]] | None:
    can_part = find_spec("sklearn") is not None  # a machine that only trains may lack it: `evaluate` elsewhere looks
    if not can_part or not on_writer(lambda: knows_its_kinds(run)):
        return None
    try:
        return unexplained_kinds(run, run.device, run.config.run.image_memory)
    except InputError:  # the file of weights that it began with is no longer what it was
        return None


def noted_scores(run: Run) -> dict[str, Any]:
    """What a run that goes on from this one shows beside its own; None where it is not known."""
    summary: dict[str, Any] = run.folder.read_json(SUMMARY) if run.folder.has(SUMMARY) else {}
    return {name: summary.get(name) for name in ("annotation_accuracy", "coverage", "test_accuracy")}


def _start(run: Run, name: str, shape: BackboneConfig | None = None) -> dict[str, torch.Tensor] | None:
    """The weights that a network goes on from in a run that refines another; None where it is to have another shape."""
    place = f"{START}/{name}"
    if not run.has(place):
        return None
    tensors, metadata = run.folder.read_safetensors(place)
    if shape is not None and not is_of_shape(metadata, shape):
        return None
    return {key: tensor for key, tensor in tensors.items() if key not in NORMALISATION}


def _warm_backbone(run: Run, bank: ImageBank) -> dict[str, torch.Tensor] | None:
    """If asked for, a backbone learnt from the images alone -> backbone.safetensors. A refined run starts from more."""
    if not run.config.n_warm_steps or run.has(f"{START}/{LF_MODEL}"):
        return None
    if not run.has(BACKBONE):
        pool = unlabeled_pool(torch.from_numpy(run.split.training_labels), with_labeled=True)
        with run.step("warm") as watch:
            weights = train_warm_start(bank, pool, run.config, watch)
            if run.writes:
                run.folder.write_safetensors(BACKBONE, weights, {"network": run.config.backbone.backbone})
        _clear_checkpoints(run, "warm")
    return run.folder.read_safetensors(BACKBONE)[0]


def _lf_backbone(run: Run) -> dict[str, torch.Tensor]:
    tensors, _ = run.folder.read_safetensors(LF_MODEL)
    network = build_network(run.config, run.dataset.n_classes, run.dataset.images.shape[-1])
    network.load_state_dict(tensors)
    return network.backbone.state_dict()


def _bank(run: Run) -> ImageBank:
    """The images for the device that trains."""
    note_environment(run)
    return ImageBank.from_numpy(run.dataset.images, run.device, run.config.run.image_memory)

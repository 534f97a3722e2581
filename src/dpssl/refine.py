"""A run that goes on from another with what a person decided about its labels: `dpssl refine`.

Comes in: a finished run with `corrections.csv`. Goes out: a new run whose given labels are those of the first and the
corrections, whose networks start from the first one's weights, and which trains for a fraction of its steps at a lower
learning rate. Images of none of the classes are trained on no more and get no label. What the new run starts from is in
its folder `start`, so that it can be stopped, moved and resumed like any other.
"""

import shutil

import numpy as np
from numpy.typing import NDArray

from dpssl.config import DP_SSL, Config, with_values
from dpssl.constants import UNLABELED
from dpssl.data.split import with_labels
from dpssl.end_model.storage import END_MODEL
from dpssl.errors import InputError, RunFolderError
from dpssl.pipeline import COMMON, LF_MODEL, ORACLE, SOFT_LABELS, noted_scores
from dpssl.report.change import LABELS_BEFORE, REFINED
from dpssl.review.corrections import CORRECTIONS, NO_CLASS, UNDECIDED, last_decisions, read_corrections
from dpssl.run_folder import START, RunFolder
from dpssl.runs import Run, derive_run
from dpssl.warm_start import BACKBONE

SHARE_OF_STEPS = 0.25
SHARE_OF_LEARNING_RATE = 0.5


def start_refined(parent: Run, out: str | None = None, refine_steps: int = 0) -> Run:
    """The new run, ready for `run_all`. `refine_steps` of step 1, step 3 in proportion; 0 = a quarter."""
    if parent.config.baseline.method != DP_SSL:
        raise InputError(
            f"{parent.folder.folder}: was trained by `dpssl fit --method {parent.config.baseline.method}`; "
            "only runs of `dpssl run` can be refined"
        )
    if parent.folder.has(ORACLE):
        raise InputError(
            f"{parent.folder.folder}: knows the truth of the unlabelled images, which no run may learn from"
        )
    for name in (LF_MODEL, SOFT_LABELS, END_MODEL):
        if not parent.folder.has(name):
            raise RunFolderError(f"{parent.folder.path(name)}: no such file; finish the run with `dpssl resume` first")
    ids = [str(name) for name in parent.dataset.ids]
    decisions = last_decisions(read_corrections(parent.folder, ids, parent.dataset.class_names), len(ids))
    if (decisions == UNDECIDED).all():
        raise InputError(
            f"{parent.folder.path(CORRECTIONS)}: holds no decision to learn from; make some with "
            f"`dpssl review {parent.folder.folder}`"
        )
    dataset, split = with_labels(parent.dataset, *corrected(parent, decisions))
    split = split.trusting(parent.split.trusted, parent.split.trusted_labels)  # but for those decided on now
    config = _settings(parent, refine_steps)
    return derive_run(parent, config, (dataset, split), out, lambda folder: _write_start(folder, parent, decisions))


def corrected(parent: Run, decisions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Given labels (n,) with the decisions among them, and the images of none of the classes."""
    given = np.where(decisions >= 0, decisions, parent.split.given_labels)
    given[decisions == NO_CLASS] = UNLABELED
    without_class = np.isin(np.arange(len(given)), parent.split.left_out) & (decisions < 0)
    return given, np.flatnonzero(without_class | (decisions == NO_CLASS))


def _settings(parent: Run, refine_steps: int) -> Config:
    """Of a first refinement, fewer steps and a lower learning rate; of a later one, those of the one before."""
    config = parent.config
    steps, end_steps = config.labeling.steps, config.end_model.end_steps
    is_first = not parent.folder.has(f"{START}/{REFINED}")
    share = refine_steps / steps if refine_steps else SHARE_OF_STEPS if is_first else 1.0
    lower = SHARE_OF_LEARNING_RATE if is_first else 1.0
    return with_values(
        config,
        {
            "steps": refine_steps or max(1, round(share * steps)),
            "end_steps": max(1, round(share * end_steps)),
            "learning_rate": lower * config.optim.learning_rate,
            "end_learning_rate": lower * config.end_model.end_learning_rate,
            "heads_first": 0,  # they have learnt, and the first labels are no longer the only ones to trust
            "surest_first": 0.0,
            "propagation_steps": 0,
            "unlabeled_warmup": 0,
        },
    )


def _write_start(folder: RunFolder, parent: Run, decisions: NDArray[np.int64]) -> None:
    folder.path(START).mkdir()
    for name in (LF_MODEL, END_MODEL, CORRECTIONS):
        shutil.copyfile(parent.folder.path(name), folder.path(f"{START}/{name}"))
    if parent.folder.has(BACKBONE):  # nothing trains from it, but its features are looked at
        shutil.copyfile(parent.folder.path(BACKBONE), folder.path(BACKBONE))
    before = parent.folder.read_soft_labels(parent.dataset.ids)
    label = np.where(before.covered, before.soft_labels.argmax(axis=1), UNLABELED)
    held = np.where(parent.split.given_labels >= 0, parent.split.given_labels, label)
    folder.write_arrays(
        f"{START}/{LABELS_BEFORE}", label=label, confidence=before.soft_labels.max(axis=1).astype(np.float16)
    )
    decided = decisions != UNDECIDED
    if parent.folder.has(f"{START}/{COMMON}"):  # what the runs said that it combines, but for what is decided now
        common = parent.folder.read_arrays(f"{START}/{COMMON}", "soft_labels", "n_runs")
        n_runs = np.where(decided, 0, common["n_runs"])
        folder.write_arrays(f"{START}/{COMMON}", soft_labels=common["soft_labels"], n_runs=n_runs)
    folder.write_json(
        f"{START}/{REFINED}",
        {
            "refined_from": str(parent.folder.folder.resolve()),
            "n_reviewed": int(decided.sum()),
            "n_corrected": int((decided & (decisions != held) & (decisions != NO_CLASS)).sum()),
            "n_left_out": int((decisions == NO_CLASS).sum()),
            "summary": noted_scores(parent),
        },
    )

"""A run that learns from what several others agree on: `dpssl combine`.

Comes in: finished runs on the same images with the same given labels. Goes out: a new run, ready for all three steps,
that takes the surest of their common labels for given ones (`Split.trusted`). Every run with few labels gives some kind
of image as a whole to a wrong class, and is sure of it; which kind is chance. So where one run errs with
confidence another objects, and what is left are labels that are nearly all right:

    P(y | image) ∝ Π_r P_r(y | image) / π(y)^(R - 1)          R runs, independent given the class
"""

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.class_prior import class_prior
from dpssl.config import DP_SSL, Config
from dpssl.errors import InputError, RunFolderError
from dpssl.pipeline import BACKBONE, SOFT_LABELS, START, SUMMARY
from dpssl.report.change import COMBINED
from dpssl.run_folder import RunFolder
from dpssl.runs import Run, derive_run

TRUST = 0.7  # of the unlabelled images; CIFAR-10 with 40 labels, two runs: 99.2 % of these labels are right
FLOOR = 0.5  # of `trust`, by class: a class that is hard to tell from another is not left without labels
TINY = 1e-12
RUNS = "runs"  # in the minutes: what the runs before took

Floats = NDArray[np.float64]


def start_combined(parents: Sequence[Run], config: Config, out: str | None = None, trust: float = TRUST) -> Run:
    """The new run, ready for `run_all`: settings `config`, images and given labels of the first of `parents`."""
    if not 0 < trust <= 1:
        raise InputError(f"--trust {trust:g}: must be above 0 and at most 1, the share of the images")
    _check_alike(parents)
    first = parents[0]
    files = [parent.folder.read_soft_labels(first.dataset.ids) for parent in parents]
    soft_labels = np.stack([file.soft_labels for file in files]).astype(np.float64)  # (R, n, C)
    prior = class_prior(config.label_model.class_prior, first.split.given_labels, first.dataset.n_classes)
    log_proba = common_labels(soft_labels, soft_labels.mean((0, 1)) if prior is None else prior)
    covered = np.any([file.covered for file in files], axis=0)
    rows = first.split.unlabeled[covered[first.split.unlabeled]]
    trusted = rows[surest(log_proba[rows], round(trust * len(rows)))]
    split = first.split.trusting(trusted, log_proba[trusted].argmax(1))
    answers = soft_labels.argmax(2)[:, rows]  # (R, unlabelled)
    noted = {
        "combined_from": [str(parent.folder.folder.resolve()) for parent in parents],
        "n_trusted": len(trusted),
        "agreement": float((answers == answers[0]).all(0).mean()) if len(rows) else 0.0,
        "summaries": [_summary(parent) for parent in parents],
    }
    minutes = {RUNS: round(sum(sum(parent.minutes().values()) for parent in parents), 4)}
    run = derive_run(
        first, config, (first.dataset, split), out, lambda folder: _write_start(folder, first, config, noted)
    )
    run.note_minutes(minutes)
    return run


def common_labels(soft_labels: Floats, prior: Floats) -> Floats:
    """log P(y | image) up to a constant, (n, C), from soft labels (R, n, C) and class shares (C,)."""
    n_runs = len(soft_labels)
    total = np.log(np.maximum(soft_labels, TINY)).sum(0)
    return np.asarray(total - (n_runs - 1) * np.log(np.maximum(prior, TINY)))


def surest(log_proba: Floats, n_wanted: int) -> NDArray[np.int64]:
    """The rows, ascending, by the log-odds of the first class over the second, from log_proba (n, C).

    `n_wanted` of them: the surest of each class until every class has FLOOR of its share, then the surest of all.
    """
    last_two = np.sort(log_proba, axis=1)[:, -2:]
    odds, label = last_two[:, 1] - last_two[:, 0], log_proba.argmax(1)
    n_rows, n_classes = log_proba.shape
    chosen = np.zeros(n_rows, dtype=np.bool_)
    for c in range(n_classes):
        members = np.flatnonzero(label == c)
        n_least = int(FLOOR * n_wanted / max(1, n_rows) * len(members))
        chosen[members[np.argsort(-odds[members], kind="stable")][:n_least]] = True
    rest = np.argsort(-np.where(chosen, -np.inf, odds), kind="stable")
    chosen[rest[: n_wanted - int(chosen.sum())]] = True
    return np.flatnonzero(chosen)


def _check_alike(parents: Sequence[Run]) -> None:
    first, places = parents[0], [parent.folder.folder.resolve() for parent in parents]
    if len(set(places)) < 2 or len(set(places)) < len(places):
        raise InputError("give at least two runs, each of them once")
    if first.config.baseline.method != DP_SSL:
        raise InputError(
            f"{first.folder.folder}: was trained by `dpssl fit --method {first.config.baseline.method}`; name a run of "
            "`dpssl run` first, whose settings the new run takes"
        )
    for parent in parents:
        place = parent.folder.folder
        if not parent.folder.has(SOFT_LABELS):
            raise RunFolderError(
                f"{parent.folder.path(SOFT_LABELS)}: no such file; finish the run with `dpssl resume` first"
            )
        if parent.dataset.class_names != first.dataset.class_names:
            raise InputError(f"{place}: its classes are not those of {first.folder.folder}")
        if not np.array_equal(parent.dataset.ids, first.dataset.ids):
            raise InputError(f"{place}: its images are not those of {first.folder.folder}")
        if not np.array_equal(parent.split.training_labels, first.split.training_labels):
            n_other = int((parent.split.training_labels != first.split.training_labels).sum())
            raise InputError(
                f"{place}: {n_other} of its given labels are not those of {first.folder.folder}; runs that are to be "
                "combined start from the same labels: leave --seed as it is and change --repeat"
            )


def _write_start(folder: RunFolder, first: Run, config: Config, noted: dict[str, Any]) -> None:
    folder.path(START).mkdir()
    folder.write_json(f"{START}/{COMBINED}", noted)
    if config.n_warm_steps and first.folder.has(BACKBONE):
        shutil.copyfile(first.folder.path(BACKBONE), folder.path(BACKBONE))


def _summary(parent: Run) -> dict[str, Any]:
    summary: dict[str, Any] = parent.folder.read_json(SUMMARY) if parent.folder.has(SUMMARY) else {}
    return {name: summary.get(name) for name in ("annotation_accuracy", "coverage", "test_accuracy")}

"""A run that learns from what several others agree on: `dpssl combine`.

Comes in: finished runs on the same images with the same given labels. Goes out: a new run, ready for all three steps,
that takes the surest of their common labels (`label_model.together`) for given ones in training (`Split.trusted`), and
whose own label model then has the casting vote. Every run with few labels gives some kind of image as a whole to a
wrong class, and is sure of it; which kind is chance. So where one run errs with confidence another objects, and what
they are surest of together is nearly all right.

Some of these mistakes a run shows by itself: classes that its end model tells apart by how much of the image they fill
(`end_model.sizes`). It has no say between these. Its word would not only mislead: it also chooses what is trusted,
those images on which its rule happens to hold, and the new run would learn the rule from them. Nor has a run a say
between a class that it has lost and those it has taken it for, where the shares of the classes are known
(`--class-prior`). If asked for, a run also has no say about the kinds of image that the rest of their class explains
least (`end_model.kinds`).
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.audit import knows_its_kinds, pairs_by_size, unexplained_images
from dpssl.baselines.registry import SYSTEMS
from dpssl.class_prior import class_prior
from dpssl.config import DP_SSL, Config
from dpssl.config_file import CONFIG
from dpssl.constants import TRUSTED_SHARE, UNEXPLAINED_SHARE, UNLABELED
from dpssl.data.split import Split, split_to_json
from dpssl.errors import InputError, RunFolderError
from dpssl.label_model.together import common_labels, left_to_some, lost_pairs, surest, without_say
from dpssl.pipeline import COMMON, ORACLE, SOFT_LABELS, noted_scores
from dpssl.report.change import COMBINED, pairs_in_words
from dpssl.run_folder import SPLIT, START, RunFolder, SoftLabelFile
from dpssl.runs import PROGRESS, Run, change_config, derive_run, use_threads
from dpssl.training.precision import pick_device
from dpssl.warm_start import BACKBONE

MUCH_APART = 0.5  # of the images; runs that have learnt the classes agree on most
RUNS = "runs"  # in the minutes: what the runs before took


@dataclass(frozen=True)
class Agreement:
    """What several runs say together, for a run that is to learn from it."""

    common: NDArray[np.float64]  # (n, C) soft labels
    n_runs: NDArray[np.int64]  # (n,) how many of them speak of the image
    split: Split  # with the trusted labels
    noted: dict[str, Any]  # for combined.json
    minutes: float  # that they took


def start_combined(
    parents: Sequence[Run],
    config: Config,
    out: str | None = None,
    trust: float = TRUSTED_SHARE,
    unexplained: float = UNEXPLAINED_SHARE,
) -> Run:
    """The new run, ready for `run_all`: settings `config`, images and given labels of the first of `parents`."""
    first, found = parents[0], agree(parents, config, trust, unexplained)
    return derive_run(
        first, config, (first.dataset, found.split), out, lambda folder: _write_start(folder, found, first, config)
    )


def combine_inside(run: Run, parents: Sequence[Run], config: Config) -> None:
    """Make `run`, in whose folder `start` its `parents` are, the one that learns from them, with the settings `config`.

    config.toml comes last: as long as it asks for a second opinion, all of this is done again.
    """
    found = agree(parents, config, TRUSTED_SHARE, UNEXPLAINED_SHARE)
    inside = [str(parent.folder.folder.relative_to(run.folder.folder)) for parent in parents]
    run.split = found.split
    run.folder.write_json(SPLIT, split_to_json(run.dataset, run.split))
    _write_start(run.folder, replace(found, noted=found.noted | {"combined_from": inside}), parents[0], config)
    shutil.copyfile(run.folder.path(CONFIG), run.folder.path(f"{START}/{CONFIG}"))
    change_config(run, config)


def _write_start(folder: RunFolder, found: Agreement, first: Run, config: Config) -> None:
    folder.path(START).mkdir(exist_ok=True)
    folder.write_json(PROGRESS, {"minutes": {RUNS: round(found.minutes, 4)}})
    folder.write_arrays(f"{START}/{COMMON}", soft_labels=found.common.astype(np.float32), n_runs=found.n_runs)
    if _same_warm_start(config, first.config) and first.folder.has(BACKBONE):
        shutil.copyfile(first.folder.path(BACKBONE), folder.path(BACKBONE))
    folder.write_json(f"{START}/{COMBINED}", found.noted)


def agree(parents: Sequence[Run], config: Config, trust: float, unexplained: float) -> Agreement:
    """What the runs say together, and which of their labels the surest share `trust` of the images may learn from."""
    if not 0 < trust <= 1:
        raise InputError(f"--trust {trust:g}: must be above 0 and at most 1, the share of the images")
    if not 0 <= unexplained < 1:
        raise InputError(f"--unexplained {unexplained:g}: must be at least 0 and below 1, the share of the images")
    _check_alike(parents)
    use_threads(config)
    first, files = parents[0], [parent.folder.read_soft_labels(parents[0].dataset.ids) for parent in parents]
    covered = np.stack([file.covered for file in files])  # (R, n)
    no_say = pairs_without_say(parents, files, config)
    silent = covered & _silent_about(parents, unexplained, config)
    soft_labels = np.stack([without_say(file.soft_labels, pairs) for file, pairs in zip(files, no_say, strict=True)])
    for of_run, has_votes, is_silent in zip(soft_labels, covered, silent, strict=True):
        of_run[is_silent] = of_run[has_votes].mean(axis=0)  # as where it has no vote
    speaks = covered & ~silent
    common, n_runs = common_labels(soft_labels, speaks), speaks.sum(axis=0)
    rows = first.split.unlabeled[n_runs[first.split.unlabeled] > 0]
    trusted = rows[surest(common[rows], n_runs[rows], round(trust * len(rows)))]
    if not len(trusted):
        raise InputError(
            f"--trust {trust:g}: of {len(rows)} images that a run has labelled this leaves none to be sure of; raise it"
        )
    split = first.split.trusting(trusted, common[trusted].argmax(1))
    answers = _answers(files, first.split.unlabeled)
    noted = {
        "combined_from": [str(parent.folder.folder.resolve()) for parent in parents],
        "methods": [parent.config.baseline.method for parent in parents],
        "n_trusted": len(trusted),
        "n_trusted_alone": int((n_runs[trusted] == 1).sum()),  # where one run alone speaks
        "no_say": no_say,  # of each run, the pairs of classes
        "n_unexplained": silent.sum(axis=1).tolist(),  # of each, the images
        "agreement": float(((answers == answers[0]) & (answers >= 0)).all(0).mean()),
        "summaries": [noted_scores(parent) for parent in parents],
    }
    minutes = sum(sum(parent.minutes().values()) for parent in parents)
    return Agreement(common, n_runs, split, noted, minutes)


def describe_start(run: Run) -> list[str]:
    """Lines about the runs that this one learns from, for who started it."""
    noted = run.folder.read_json(f"{START}/{COMBINED}")
    lines = []
    for source, pairs, n_silent in zip(noted["combined_from"], noted["no_say"], noted["n_unexplained"], strict=True):
        if pairs:
            names = pairs_in_words(pairs, run.dataset.class_names)
            lines.append(f"{source} has no say between {names}: told apart by their size, or one of them lost")
        if n_silent:
            lines.append(f"{source} has no say about {n_silent:,} images that nothing explains")
    alone = f", {noted['n_trusted_alone']:,} of them of one run alone" if noted["n_trusted_alone"] else ""
    lines.append(
        f"the runs agree on {100 * noted['agreement']:.1f} % of the unlabelled images; takes {noted['n_trusted']:,} "
        f"labels as given, of which they are surest together{alone}"
    )
    if noted["agreement"] < MUCH_APART:
        lines.append("warning: that is little; look at both before you trust what is learnt from them")
    return lines


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
            reason = f"{place}: its images are not those of {first.folder.folder}"
            if parent.config.run.seed != first.config.run.seed:
                reason += "; another --seed holds other images back for testing: leave it as it is and change --repeat"
            raise InputError(reason)
        method = parent.config.baseline.method
        if parent.folder.has(ORACLE) or (method != DP_SSL and SYSTEMS[method].uses_all_labels):
            raise InputError(f"{place}: knows the truth of the unlabelled images, which no run may learn from")
        if len(parent.split.trusted):
            raise InputError(f"{place}: combines others already; name the runs that it was made from")
        if not np.array_equal(parent.split.training_labels, first.split.training_labels):
            n_other = int((parent.split.training_labels != first.split.training_labels).sum())
            raise InputError(
                f"{place}: {n_other} of its given labels are not those of {first.folder.folder}; runs that are to be "
                "combined start from the same labels: leave --seed as it is and change --repeat"
            )


def _answers(files: Sequence[SoftLabelFile], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """(R, rows) the label that each run gives, -1 where it has no vote."""
    return np.stack([np.where(file.covered[rows], file.soft_labels[rows].argmax(1), UNLABELED) for file in files])


def pairs_without_say(
    parents: Sequence[Run], files: Sequence[SoftLabelFile], config: Config
) -> list[list[tuple[int, int]]]:
    """Of each run: classes it tells apart by size, and classes that it has lost with those it has taken them for."""
    split, n_classes = parents[0].split, parents[0].dataset.n_classes
    by_size = pairs_by_size(parents, pick_device(config.run.device), config.run.image_memory)
    shares = class_prior(config.label_model.class_prior, split.given_labels, n_classes)
    lost: list[list[tuple[int, int]]] = [[] for _ in parents]
    if shares is not None:
        lost = lost_pairs(_answers(files, split.unlabeled), shares)
    return left_to_some(
        [sorted({*of_size, *of_lost}) for of_size, of_lost in zip(by_size, lost, strict=True)], n_classes
    )


def _silent_about(parents: Sequence[Run], share: float, config: Config) -> NDArray[np.bool_]:
    """(R, n) true for the images of the kinds that the rest of their class explains least, `share` of a run's."""
    silent = np.zeros((len(parents), len(parents[0].dataset.ids)), dtype=np.bool_)
    if not share:
        return silent
    if not any(knows_its_kinds(parent) for parent in parents):
        raise InputError(f"--unexplained {share:g}: none of these runs has a warm start, whose features it looks at")
    device, memory = pick_device(config.run.device), config.run.image_memory
    for of_run, parent in zip(silent, parents, strict=True):
        if knows_its_kinds(parent):
            of_run |= unexplained_images(parent, share, device, memory)
    return silent


def _same_warm_start(config: Config, other: Config) -> bool:
    """Whether both begin with one of the same kind; a run of fewer steps does not make a shorter one of its own."""
    alike = config.warm_start == other.warm_start and config.backbone == other.backbone
    return alike and other.n_warm_steps >= config.n_warm_steps > 0

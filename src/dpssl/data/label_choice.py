"""Which labels a run may see of images whose truth is known: some of each class by seed, from a fold, or named by id.

Comes in: a dataset. Goes out: its given labels, (n,) with -1 for all others. This is the one place where the truth of
an image becomes a label; everything after it sees the labels alone.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import UNLABELED
from dpssl.data.table import Dataset, Labels
from dpssl.errors import InputError


def reveal_number(
    dataset: Dataset, n_labels: int, labels_per_class: int, fold: int, draws: np.random.Generator
) -> Labels:
    """`labels_per_class` labels of each class, or where that is 0 `n_labels` in total; of all images or of a fold."""
    asked = f"--n-labels {n_labels}"
    if labels_per_class:
        asked, n_labels = f"--labels-per-class {labels_per_class}", labels_per_class * dataset.n_classes
    eligible = np.ones(len(dataset.images), dtype=np.bool_)
    if fold:
        eligible = _rows_of_fold(dataset, fold)
        asked = f"--fold {fold} {asked}"
        if n_labels >= eligible.sum():  # a fold whole, as it was published
            return np.where(eligible, dataset.truth, UNLABELED)
    per_class, remainder = divmod(n_labels, dataset.n_classes)
    if per_class < 1:
        missing = dataset.class_names[max(n_labels, 0)]
        raise InputError(
            f"{asked}: {dataset.n_classes} classes need at least {dataset.n_classes} labels; "
            f"{missing!r} would be a class without a labelled example"
        )
    given = np.full(len(dataset.images), UNLABELED, dtype=np.int64)
    for label, class_name in enumerate(dataset.class_names):
        wanted = per_class + (label < remainder)
        members = draws.permutation(np.flatnonzero(eligible & (dataset.truth == label)))
        if len(members) < wanted:
            raise InputError(
                f"{asked}: asks for {wanted} labels of class {class_name!r}, which has "
                f"{len(members)} images of known class; lower it"
            )
        given[members[:wanted]] = label
    return given


def reveal_ids(dataset: Dataset, ids: Sequence[str]) -> Labels:
    """The labels of the images called `ids`."""
    position = {str(name): row for row, name in enumerate(dataset.ids)}
    unknown = [name for name in ids if name not in position]
    if unknown:
        where = "a test image" if unknown[0] in set(dataset.test_ids.tolist()) else "no image of the data"
        raise InputError(f"--labeled-ids: {unknown[0]!r} is {where}; the first image is {str(dataset.ids[0])!r}")
    rows = np.array([position[name] for name in ids], dtype=np.int64)
    without = rows[dataset.truth[rows] == UNLABELED]
    if without.size:
        raise InputError(f"--labeled-ids: the class of {str(dataset.ids[without[0]])!r} is not known; leave it out")
    given = np.full(len(dataset.images), UNLABELED, dtype=np.int64)
    given[rows] = dataset.truth[rows]
    return given


def read_ids(file: str) -> list[str]:
    """The ids in the file that `--labeled-ids` names, one a line; blank lines are skipped."""
    try:
        lines = Path(file).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"--labeled-ids {file}: cannot be read ({error}); give a text file with one id a line"
        ) from error
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise InputError(f"--labeled-ids {file}: names no id; give one a line")
    if len(set(ids)) < len(ids):
        twice = next(name for row, name in enumerate(ids) if name in ids[:row])
        raise InputError(f"--labeled-ids {file}: {twice!r} stands there twice")
    return ids


def _rows_of_fold(dataset: Dataset, fold: int) -> NDArray[np.bool_]:
    if not dataset.folds:
        raise InputError(f"--fold {fold}: {dataset.name} has no published folds; leave it out (stl10 has ten)")
    if fold > len(dataset.folds):
        raise InputError(f"--fold {fold}: {dataset.name} has the folds 1 to {len(dataset.folds)}")
    chosen = np.zeros(len(dataset.images), dtype=np.bool_)
    chosen[dataset.folds[fold - 1]] = True
    return np.asarray(chosen & (dataset.truth != UNLABELED))

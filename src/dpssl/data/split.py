"""Which images are labelled, which are to be labelled, which are held out: the content of `split.json`.

`labeled` and `unlabeled` part the images of the dataset, but for those that a person found to be of no class. As in
FixMatch, training draws its unlabelled batches from all of them, labelled ones included (`--labeled-in-unlabeled`);
annotation metrics, though, count `unlabeled` alone: a given label is no annotation, a trusted one (`dpssl combine`) is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.config import DataConfig
from dpssl.constants import LEFT_OUT, UNLABELED
from dpssl.data.label_choice import read_ids, reveal_ids, reveal_number
from dpssl.data.table import Dataset, Ids, Labels
from dpssl.errors import InputError

Positions = NDArray[np.int64]
LEAVE_SOME = "leave some of them unlabelled"  # where a person gave them all


def _none() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Split:
    """Positions into the images (labelled, unlabelled) and test images of the dataset that came with it."""

    labeled: Positions  # (n_labels,) ascending
    unlabeled: Positions  # (n - n_labels,) ascending
    test: Positions  # (m,) into test_images
    given_labels: Labels  # (n,) -1 for the unlabelled
    left_out: Positions = field(default_factory=_none)  # of none of the classes, a person said
    trusted: Positions = field(default_factory=_none)  # unlabelled ones on which several runs agree
    trusted_labels: Labels = field(default_factory=_none)  # and what they say

    @property
    def training_labels(self) -> Labels:
        """(n,) what training may know: given and trusted labels, UNLABELED, or LEFT_OUT."""
        labels = self.given_labels.copy()
        labels[self.trusted] = self.trusted_labels
        labels[self.left_out] = LEFT_OUT
        return labels

    def trusting(self, trusted: Positions, labels: Labels) -> "Split":
        """The same split with other trusted labels; those of images that are not `unlabeled` are dropped."""
        kept = np.isin(trusted, self.unlabeled)
        return replace(self, trusted=trusted[kept], trusted_labels=labels[kept])

    def without_trust(self) -> "Split":
        """The same split with given labels alone."""
        return self.trusting(_none(), _none())


def make_split(
    dataset: Dataset,
    n_labels: int,
    seed: int,
    test_fraction: float = 0.2,
    *,
    labels_per_class: int = 0,
    fold: int = 0,
    labeled_ids: Sequence[str] | None = None,
) -> tuple[Dataset, Split]:
    """Hold out a test set where the dataset has none, then choose the labels the run may see.

    `labeled_ids` are labelled and no others. Otherwise labels the user gave are used as they are, and the numbers are
    ignored. Otherwise `n_labels` are revealed, the same number in each class (the first classes take one more where it
    does not divide), or `labels_per_class` in each, from a shuffle per class by `seed` as in FixMatch; where `fold` is
    not 0, from that published fold alone. The test set is stratified, from images whose truth is known and whose label
    the run does not see.
    """
    if not 0 < test_fraction < 1:
        raise InputError(f"--test-fraction {test_fraction}: must lie between 0 and 1, for example 0.2")
    if seed < 0:
        raise InputError(f"--seed {seed}: must be 0 or more")
    test_draws, label_draws = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    if labeled_ids is not None:
        dataset = replace(dataset, given_labels=reveal_ids(dataset, labeled_ids))
    if len(dataset.test_images) == 0:
        dataset = _hold_out(dataset, _draw_test(dataset, test_fraction, test_draws))
    given = dataset.given_labels
    remedy = LEAVE_SOME if labeled_ids is None else "name fewer in --labeled-ids"
    if not (given != UNLABELED).any():
        given = reveal_number(dataset, n_labels, labels_per_class, fold, label_draws)
        remedy = "lower --labels-per-class" if labels_per_class else "lower --n-labels"
    return with_labels(dataset, given, remedy=remedy)


def every_known_label(dataset: Dataset, split: Split) -> Labels:
    """Given labels, and the truth of all other images: for the fully supervised baseline alone, (n,), -1 = unknown."""
    if (dataset.truth[split.unlabeled] == UNLABELED).all():
        raise InputError(
            f"--method fully-supervised: {dataset.name} holds the class of no unlabelled image; choose supervised"
        )
    return np.where(split.given_labels != UNLABELED, split.given_labels, dataset.truth)


def labels_a_class(dataset: Dataset, split: Split) -> str:
    """How many labels the classes have, as a person reads it: `4 a class`, or `2 (cat) to 9 (dog) a class`."""
    counts = np.bincount(split.given_labels[split.labeled], minlength=dataset.n_classes)
    fewest, most = int(counts.argmin()), int(counts.argmax())
    if counts[fewest] == counts[most]:
        return f"{counts[most]} a class"
    names = dataset.class_names
    return f"{counts[fewest]} ({names[fewest]}) to {counts[most]} ({names[most]}) a class"


def split_as_asked(dataset: Dataset, settings: DataConfig, seed: int) -> tuple[Dataset, Split]:
    """`make_split` by the settings of a run."""
    return make_split(
        dataset,
        settings.n_labels,
        seed,
        settings.test_fraction,
        labels_per_class=settings.labels_per_class,
        fold=settings.fold,
        labeled_ids=read_ids(settings.labeled_ids) if settings.labeled_ids else None,
    )


def split_to_json(dataset: Dataset, split: Split) -> dict[str, Any]:
    """The split as ids, so that it outlives the order of the rows."""
    left_out = {"left_out": dataset.ids[split.left_out].tolist()} if len(split.left_out) else {}
    trusted = dict(zip(dataset.ids[split.trusted].tolist(), split.trusted_labels.tolist(), strict=True))
    return {
        "labeled": {str(dataset.ids[row]): int(split.given_labels[row]) for row in split.labeled},
        "unlabeled": dataset.ids[split.unlabeled].tolist(),
        "test": dataset.test_ids[split.test].tolist(),
        **left_out,
        **({"trusted": trusted} if trusted else {}),
    }


@dataclass(frozen=True)
class _Named:
    """A split.json, checked for what it has to hold."""

    labeled: dict[str, int]
    unlabeled: list[str]
    test: list[str]
    left_out: list[str]
    trusted: dict[str, int]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "_Named":
        try:
            return cls(
                {str(name): int(label) for name, label in document["labeled"].items()},
                list(map(str, document["unlabeled"])),
                list(map(str, document["test"])),
                list(map(str, document.get("left_out", []))),
                {str(name): int(label) for name, label in document.get("trusted", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"split.json: misses `labeled`, `unlabeled` or `test` ({error!r}); start a new run"
            ) from error


def ids_in_json(document: Mapping[str, Any]) -> set[str]:
    """Every image that `split_to_json` described."""
    named = _Named.read(document)
    return {*named.labeled, *named.unlabeled, *named.test, *named.left_out}


def split_from_json(dataset: Dataset, document: Mapping[str, Any]) -> tuple[Dataset, Split]:
    """The dataset and split that `split_to_json` described, from the dataset as its reader returns it."""
    named = _Named.read(document)
    if len(dataset.test_images) == 0:
        dataset = _hold_out(dataset, _positions(dataset.ids, named.test))
    _check_same_ids(dataset.ids, [*named.labeled, *named.unlabeled, *named.left_out])
    _check_same_ids(dataset.test_ids, named.test)
    given = np.full(len(dataset.ids), UNLABELED, dtype=np.int64)
    given[_positions(dataset.ids, list(named.labeled))] = list(named.labeled.values())
    dataset, split = with_labels(dataset, given, _positions(dataset.ids, named.left_out))
    labels = np.array(list(named.trusted.values()), dtype=np.int64)
    outside = (labels < 0) | (labels >= dataset.n_classes)
    if outside.any():
        raise InputError(f"split.json: the trusted label {labels[outside][0]} is no class; start a new run")
    return dataset, split.trusting(_positions(dataset.ids, list(named.trusted)), labels)


def with_labels(
    dataset: Dataset, given: Labels, left_out: Positions | None = None, remedy: str = LEAVE_SOME
) -> tuple[Dataset, Split]:
    """The dataset and split in which `given` (n,) are the labels that a run may see; `remedy` is for where all are."""
    left_out = np.empty(0, np.int64) if left_out is None else left_out
    dataset = replace(dataset, given_labels=given)
    counts = np.bincount(given[given != UNLABELED], minlength=dataset.n_classes)
    if (counts == 0).any():
        missing = dataset.class_names[int(counts.argmin())]
        raise InputError(
            f"{dataset.name}: class {missing!r} is a class without a labelled example; label at least one image of it"
        )
    unlabeled = np.setdiff1d(np.flatnonzero(given == UNLABELED), left_out)
    if not len(unlabeled):
        others = f", or are of no class ({len(left_out)})" if len(left_out) else ""
        raise InputError(
            f"{dataset.name}: no unlabelled images, all {len(given)} have labels{others}; {remedy} or add images"
        )
    split = Split(
        labeled=np.flatnonzero(given != UNLABELED),
        unlabeled=unlabeled,
        test=np.arange(len(dataset.test_images)),
        given_labels=given,
        left_out=left_out,
    )
    return dataset, split


def _draw_test(dataset: Dataset, test_fraction: float, draws: np.random.Generator) -> Positions:
    """A share of each class, rounded so that the whole is the share of all, rounded up (scikit-learn's rule).

    A class keeps its last image: another with more of them gives one instead.
    """
    eligible = (dataset.truth != UNLABELED) & (dataset.given_labels == UNLABELED)
    counts = np.bincount(dataset.truth[eligible], minlength=dataset.n_classes)  # (C,)
    quota = counts * test_fraction
    n_test = np.floor(quota).astype(np.int64)
    largest_remainders = np.argsort(n_test - quota, kind="stable")
    while (n_missing := ceil(counts.sum() * test_fraction) - n_test.sum()) > 0:
        can_give = largest_remainders[(n_test < counts - 1)[largest_remainders]]
        if not can_give.size:
            emptied = next(label for label in largest_remainders if counts[label])
            raise InputError(
                f"--test-fraction {test_fraction}: would hold out all {counts[emptied]} images of class "
                f"{dataset.class_names[emptied]!r}; {'lower it' if counts.max() > 1 else 'add images of it'}"
            )
        n_test[can_give[:n_missing]] += 1
    return np.sort(
        np.concatenate(
            [
                draws.permutation(np.flatnonzero(eligible & (dataset.truth == label)))[: n_test[label]]
                for label in range(dataset.n_classes)
            ]
        )
    )


def _hold_out(dataset: Dataset, test: Positions) -> Dataset:
    """The dataset with the images at `test` moved to its test set."""
    if test.size == 0:  # indexing copies, and the images may be a memory map of more than fits
        return dataset
    kept = np.delete(np.arange(len(dataset.images)), test)
    return replace(
        dataset,
        images=dataset.images[kept],
        ids=dataset.ids[kept],
        given_labels=dataset.given_labels[kept],
        truth=dataset.truth[kept],
        test_images=dataset.images[test],
        test_ids=dataset.ids[test],
        test_truth=dataset.truth[test],
        folds=tuple(np.flatnonzero(np.isin(kept, fold)) for fold in dataset.folds),
    )


def _positions(ids: Ids, wanted: list[str]) -> Positions:
    position = {str(name): row for row, name in enumerate(ids)}
    missing = [name for name in wanted if name not in position]
    if missing:
        raise InputError(f"split.json: id {missing[0]!r} is not in the data set; use the data the run was made with")
    return np.array([position[name] for name in wanted], dtype=np.int64)


def _check_same_ids(ids: Ids, named: list[str]) -> None:
    _positions(ids, named)
    left_out = set(ids.tolist()) - set(named)
    if left_out or len(named) != len(ids):
        raise InputError(
            f"split.json: names {len(named)} of the data set's {len(ids)} images, and not {sorted(left_out)[:3]}; "
            "use the data the run was made with"
        )

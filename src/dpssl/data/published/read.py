"""Find a published set on the disk and read it as a `Dataset` whose labels are the truth, hidden until a split.

It is looked for in the folder that DPSSL_DATA names, in `data` and in the cache folder, in each under its published
names (catalog.py). A file NAME.npz in one of these folders comes first; it is not this module's to read.
"""

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpssl.constants import UNLABELED
from dpssl.data.published import cifar, idx, stl10, svhn
from dpssl.data.published.catalog import PUBLISHED, Layout, PublishedSet
from dpssl.data.published.files import ArchiveFiles, FolderFiles, SetFiles
from dpssl.data.published.parts import Part
from dpssl.data.table import Dataset, Folds, Ids, Origin, numbered_ids
from dpssl.errors import InputError


@dataclass(frozen=True)
class FoundFiles:
    """The files of a set, in one of its layouts."""

    published: PublishedSet
    layout: Layout
    place: Path  # the folder or archive
    files: SetFiles


def data_folders() -> list[Path]:
    """Where published sets are looked for, in this order."""
    folders = [Path("data"), cache_folder()]
    return [Path(os.environ["DPSSL_DATA"]).expanduser(), *folders] if os.environ.get("DPSSL_DATA") else folders


def cache_folder() -> Path:
    return Path.home() / ".cache" / "dpssl"


def find_published(name: str) -> Path | FoundFiles:
    """The first place that has the set, as NAME.npz or as its files; an error lists all the places."""
    published, fetch = PUBLISHED[name], f"dpssl data fetch {name}"
    for folder in data_folders():
        if (folder / f"{name}.npz").is_file():
            return folder / f"{name}.npz"
        for layout in published.layouts:
            for place in layout.folders:
                files = FolderFiles(folder / place, fetch)
                if Path(files.place(layout.files[0])).is_file():  # one that misses others is named by the reader
                    return FoundFiles(published, layout, folder / place, files)
            if layout.archive and (folder / layout.archive).is_file():
                archive = folder / layout.archive
                return FoundFiles(published, layout, archive, ArchiveFiles(archive, layout.folders[0], fetch))
    places = ", ".join(map(str, data_folders()))
    raise InputError(
        f"--data {name}: {published.title} is in none of {places}; `{fetch}` gets it, or put "
        f"one of {', '.join(_names(published))} there, or set DPSSL_DATA to the folder that has it"
    )


def _names(published: PublishedSet) -> list[str]:
    """What a message says may be put into a data folder."""
    names = [f"{published.name}.npz"]
    for layout in published.layouts:
        names += [layout.archive] if layout.archive else []
        names.append(f"{layout.folders[0]}/ with {', '.join(layout.files[:2])}, …")
    return names


def read_published(found: FoundFiles) -> Dataset:
    with closing(found.files):
        return _read(found)


def _read(found: FoundFiles) -> Dataset:
    name, files, layout = found.published.name, found.files, found.layout
    n_classes = len(found.published.class_names)
    folds: Folds = ()
    if layout.kind == "cifar-binary":
        train, test = cifar.read_binary(files, name, n_classes)
    elif layout.kind == "cifar-python":
        train, test = cifar.read_python(files, name, n_classes)
    elif layout.kind == "svhn":
        train, test = (svhn.read_mat(files, f"{part}_32x32.mat", n_classes) for part in ("train", "test"))
    elif layout.kind == "stl10":
        (train, folds), test = stl10.read_train(files, n_classes), stl10.read_test(files, n_classes)
    else:
        train, test = (idx.read_part(files, part, n_classes) for part in ("train", "t10k"))
    extra = svhn.read_mat(files, "extra_32x32.mat", n_classes) if name == "svhn-extra" else None
    return _as_dataset(found, train, extra, test, folds)


def _as_dataset(found: FoundFiles, train: Part, extra: Part | None, test: Part, folds: Folds) -> Dataset:
    images, labels, ids = train.images, train.labels, _train_ids(train)
    if extra is not None:
        images = np.concatenate([images, extra.images])
        labels = np.concatenate([labels, extra.labels])
        ids = np.concatenate([ids, numbered_ids("extra", len(extra.images))])
    return Dataset(
        name=found.published.name,
        images=images,
        ids=ids,
        class_names=found.published.class_names,
        given_labels=np.full(len(images), UNLABELED, dtype=np.int64),
        truth=labels,
        test_images=test.images,
        test_ids=numbered_ids("test", len(test.images)),
        test_truth=test.labels,
        folds=folds,
        origin=Origin(f"{found.place}: {found.published.title}, from its published files"),
    )


def _train_ids(train: Part) -> Ids:
    """`train-00000` …; images without a published label, which follow the others, are `unlabeled-00000` …"""
    n_labeled = int((train.labels != UNLABELED).sum())
    return np.concatenate([numbered_ids("train", n_labeled), numbered_ids("unlabeled", len(train.labels) - n_labeled)])

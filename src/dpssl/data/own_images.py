"""A folder or TAR of image files as a `Dataset`: found, decoded into the cache, and joined with their labels."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

import numpy as np

from dpssl.config import DataConfig
from dpssl.constants import UNLABELED
from dpssl.data.cache import DecodedImages, decoded_images
from dpssl.data.collection import Collection, read_collection
from dpssl.data.copies import find_copies
from dpssl.data.decode import BACKGROUND
from dpssl.data.image_files import ImageFile, printable
from dpssl.data.table import Dataset, Labels, Origin
from dpssl.errors import InputError

N_SHOWN = 3  # of a list, in a message


def read_own_images(
    path: Path,
    labels: str,
    settings: DataConfig,
    n_workers: int = 0,
    progress: bool = False,
    only: Container[str] | None = None,
) -> Dataset:
    """The images below `path` with the labels there are; damaged files are left out, too many of them are an error.

    `only` are the ids of those that are asked for; without it all are.
    """
    collection = read_collection(path, labels, settings.follow_links, only)
    decoded = decoded_images(collection.files, settings.image_size, n_workers, progress)
    return as_dataset(collection, decoded, settings.max_damaged)


def as_dataset(collection: Collection, decoded: DecodedImages, max_damaged: float) -> Dataset:
    """Images and labels joined by id, without the damaged ones."""
    damaged = dict(collection.files.skipped) | decoded.damaged
    _require_few(damaged, len(collection.files.files) + len(collection.files.skipped), max_damaged, collection)
    images = [file for file in collection.images if file.id not in damaged]
    test_images = [file for file in collection.test_images if file.id not in damaged]
    number = {name: label for label, name in enumerate(collection.class_names)}
    labels = _numbers(images, collection.labels, number)
    side, channels = decoded.pixels.shape[2:]
    return Dataset(
        name=collection.files.root.resolve().name,
        images=decoded.pixels[: len(images)],
        ids=np.array([file.id for file in images], dtype=np.str_),
        class_names=collection.class_names,
        given_labels=labels if collection.are_given else np.full(len(images), UNLABELED, dtype=np.int64),
        truth=labels,
        test_images=decoded.pixels[len(images) :],
        test_ids=np.array([file.id for file in test_images], dtype=np.str_),
        test_truth=_numbers(test_images, collection.labels, number),
        origin=Origin(
            statement=state(collection, decoded),
            decoding={"image_size": side, "channels": channels, "crop": "centre square", "background": BACKGROUND},
            damaged=damaged,
            n_passed_over=len(collection.files.passed_over),
            notes=tuple(_notes(collection, decoded, damaged)),
        ),
    )


def state(collection: Collection, decoded: DecodedImages) -> str:
    """What was found and what was made of it, in a line."""
    side, channels = decoded.pixels.shape[2:]
    sizes = Counter[str]()
    for kind, count in decoded.kinds.items():
        sizes[kind.partition(" ")[0]] += count
    shown = next(iter(sizes)) if len(sizes) == 1 else f"{len(sizes):,} sizes"
    whose = "given" if collection.are_given else "a benchmark's: all but --n-labels are hidden"
    return (
        f"{collection.files.root}: {collection.layout} (labels are {whose}); {len(decoded.pixels):,} files of {shown}, "
        f"their centre square at {side}x{side} in {'grey' if channels == 1 else 'colour'}"
    )


def _numbers(files: Sequence[ImageFile], labels: Mapping[str, str], number: Mapping[str, int]) -> Labels:
    return np.array(
        [number[labels[file.id]] if file.id in labels else UNLABELED for file in files], dtype=np.int64
    ).reshape(len(files))


def _require_few(damaged: Mapping[str, str], n_files: int, max_damaged: float, collection: Collection) -> None:
    if len(damaged) <= max_damaged * n_files:
        return
    shown = "; ".join(f"{printable(name)} {reason}" for name, reason in list(damaged.items())[:N_SHOWN])
    raise InputError(
        f"--data {collection.files.root}: {len(damaged):,} of {n_files:,} image files are damaged, more than "
        f"--max-damaged {max_damaged:g}: {shown}{'; …' if len(damaged) > N_SHOWN else ''}; "
        "repair or remove them (`dpssl data check` lists all), or raise --max-damaged"
    )


def _notes(collection: Collection, decoded: DecodedImages, damaged: Mapping[str, str]) -> list[str]:
    notes = []
    n_labeled = sum(name in collection.labels for name in damaged)
    if n_labeled:
        notes.append(f"labelled images that are damaged and left out: {n_labeled:,}")
    copies = find_copies([file.id for file in collection.files.files if file.id not in damaged], decoded.digests)
    test_ids = {file.id for file in collection.test_images}
    leaked = [group for group in copies if 0 < sum(name in test_ids for name in group) < len(group)]
    if leaked:
        pair = " and ".join(map(printable, leaked[0][:2]))
        notes.append(
            f"{len(leaked):,} test images are outside the test set too, byte by byte ({pair}): its scores flatter"
        )
    if collection.are_given:  # a benchmark's labels are hidden
        contradictions = _contradictions(copies, collection.labels)
        notes += contradictions[:N_SHOWN]
        if len(contradictions) > N_SHOWN:
            notes.append(f"… and {len(contradictions) - N_SHOWN:,} more images under several labels")
    return notes


def _contradictions(copies: list[list[str]], labels: Mapping[str, str]) -> list[str]:
    notes = []
    for group in copies:
        given = {labels[name]: name for name in group if name in labels}
        if len(given) > 1:
            labelled = " and ".join(f"{printable(name)} ({label!r})" for label, name in given.items())
            notes.append(f"the same image under several labels: {labelled}")
    return notes

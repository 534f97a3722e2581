"""What is in a collection of images and what a run would make of it, as lines to read: `dpssl data check`.

The image files are decoded into the cache on the way, so a run that follows finds them there.
"""

import hashlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpssl.config import DataConfig, default_preset
from dpssl.constants import UNLABELED
from dpssl.data.cache import DecodedImages, decoded_images
from dpssl.data.collection import Collection, UnlabeledFiles, read_collection
from dpssl.data.copies import find_copies
from dpssl.data.decode_blocks import DIGEST_BYTES
from dpssl.data.image_files import printable
from dpssl.data.own_images import as_dataset
from dpssl.data.readers import UnlabeledArray, is_built_in, load_dataset
from dpssl.data.split import split_as_asked
from dpssl.data.table import Dataset, Images
from dpssl.errors import InputError

N_SHOWN = 5  # of a list

Copies = list[list[str]]  # groups of ids
Findings = Generator[str, None, tuple[Dataset, Copies]]


def describe_collection(settings: DataConfig, seed: int, progress: bool = False) -> Iterator[str]:
    """Lines on what `settings.data` holds; an InputError at the end where a run would refuse it."""
    path = Path(settings.data).expanduser()
    are_files = not is_built_in(settings.data) and (path.is_dir() or (path.suffix == ".tar" and path.is_file()))
    dataset, copies = yield from _check_files(path, settings, progress) if are_files else _check_arrays(settings)
    yield _row("classes", f"{dataset.n_classes}: {_listed(dataset.class_names)}")
    for note in dataset.origin.notes:
        yield _row("note", note)
    was_apart = len(dataset.test_ids) > 0
    dataset, _ = split_as_asked(dataset, settings, seed)
    if len(dataset.test_ids) and not was_apart:
        yield _row("held out", f"{len(dataset.test_ids):,} images to test on")
    if len(dataset.test_ids) and not (are_files and was_apart):  # of files in test/ it was told with the files
        labelled = set(dataset.ids[dataset.given_labels != UNLABELED].tolist())
        yield from _describe_crossing(copies, set(dataset.test_ids.tolist()), labelled)
    yield from _describe_run(settings, dataset)


def _check_files(path: Path, settings: DataConfig, progress: bool) -> Findings:
    refusal: InputError | None = None
    try:
        collection = read_collection(path, settings.labels, settings.follow_links)
    except UnlabeledFiles as error:
        collection, refusal = error.collection, error
    decoded = decoded_images(collection.files, settings.image_size, progress=progress)
    kept = [file.id for file in collection.files.files if file.id not in decoded.damaged]
    copies = find_copies(kept, decoded.digests)
    yield from _describe_files(collection, decoded, copies)
    if refusal is not None:
        yield _describe_images(decoded.pixels)
        raise refusal
    dataset = as_dataset(collection, decoded, settings.max_damaged)
    yield _describe_images(dataset.images)
    yield _row("test images", f"{len(dataset.test_images):,}")
    return dataset, copies


def _check_arrays(settings: DataConfig) -> Findings:
    try:
        dataset = load_dataset(settings.data, settings.labels, settings)
    except UnlabeledArray as error:
        yield f"{settings.data}: images without labels"
        yield _describe_images(error.images)
        yield _row("exact copies", _describe_copies(find_copies(error.ids.tolist(), _digests(error.images))))
        raise
    yield _describe_images(dataset.images)
    yield _row("test images", f"{len(dataset.test_images):,}")
    digests = np.concatenate([_digests(dataset.images), _digests(dataset.test_images)])
    copies = find_copies([*dataset.ids.tolist(), *dataset.test_ids.tolist()], digests)
    yield _row("exact copies", _describe_copies(copies))
    return dataset, copies


def _digests(images: Images) -> NDArray[np.uint8]:
    """(n, DIGEST_BYTES) of the pixels, image by image: the images may be a memory map of more than fits."""
    digests = np.empty((len(images), DIGEST_BYTES), dtype=np.uint8)
    for row, image in enumerate(images):
        digest = hashlib.sha256(np.ascontiguousarray(image).data).digest()
        digests[row] = np.frombuffer(digest, dtype=np.uint8, count=DIGEST_BYTES)
    return digests


def _describe_files(collection: Collection, decoded: DecodedImages, copies: Copies) -> Iterator[str]:
    damaged = dict(collection.files.skipped) | decoded.damaged
    n_files = len(collection.files.files) + len(collection.files.skipped)
    yield f"{collection.files.root}: {collection.layout}"
    yield _row("files", f"{n_files:,}, {len(damaged):,} of them damaged ({len(damaged) / n_files:.1%})")
    sizes, modes, formats = Counter[str](), Counter[str](), Counter[str]()
    for kind, count in decoded.kinds.items():
        for counter, value in zip((sizes, modes, formats), kind.split(" "), strict=True):
            counter[value] += count
    yield _row("sizes", _most_common(sizes))
    yield _row("modes", _most_common(modes))
    yield _row("formats", _most_common(formats))
    yield _row("exact copies", _describe_copies(copies))
    test = {file.id for file in collection.test_images}
    if test:
        yield from _describe_crossing(copies, test, set(collection.labels) - test)
    by_case = Counter(file.id.casefold() for file in collection.files.files if file.id not in decoded.damaged)
    n_alike = sum(count for count in by_case.values() if count > 1)
    if n_alike:
        yield _row("names", f"{n_alike:,} files have names that differ by case alone: not every disk can hold them")
    for name, reason in damaged.items():
        yield _row("damaged", f"{printable(name)}: {reason}")


def _describe_crossing(copies: Copies, test: set[str], labelled: set[str]) -> Iterator[str]:
    """The copies between test images and others, and those of them between test and labelled images."""
    crossing = [group for group in copies if test.intersection(group) and not test.issuperset(group)]
    yield _row("  across test", _describe_copies(crossing))
    yield _row("  and labelled", _describe_copies([group for group in crossing if labelled.intersection(group)]))


def _describe_images(images: Images) -> str:
    height, width, channels = images.shape[1:]
    return _row("images", f"{len(images):,} of {width}x{height}, {'grey' if channels == 1 else 'colour'}")


def _describe_run(settings: DataConfig, dataset: Dataset) -> Iterator[str]:
    height, width, channels = dataset.images.shape[1:]
    given = dataset.given_labels[dataset.given_labels != UNLABELED]
    counts = np.bincount(given, minlength=dataset.n_classes)
    per_class = dict(zip(dataset.class_names, counts.tolist(), strict=True))
    yield _row("labels", f"{len(given)}, {counts.min()} to {counts.max()} a class: {_balance(per_class)}")
    preset = default_preset(settings.data, max(height, width))
    yield (
        f"dpssl run would label {len(dataset.images) - len(given):,} images of {width}x{height} in "
        f"{'grey' if channels == 1 else 'colour'} from {len(given)} labels of {dataset.n_classes} classes, test on "
        f"{len(dataset.test_images):,}, and start from preset {preset}"
    )


def _row(name: str, text: str) -> str:
    return f"  {name:<14} {text}"


def _most_common(counts: Counter[str]) -> str:
    shown = ", ".join(f"{value} ({count:,})" for value, count in counts.most_common(N_SHOWN))
    return f"{shown} and {len(counts) - N_SHOWN:,} more" if len(counts) > N_SHOWN else shown


def _describe_copies(groups: Copies) -> str:
    if not groups:
        return "none"
    return f"{len(groups):,} groups, such as {' = '.join(map(printable, groups[0][:3]))}"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(printable, names[: 4 * N_SHOWN]))
    return f"{shown}, …" if len(names) > 4 * N_SHOWN else shown


def _balance(per_class: Mapping[str, int]) -> str:
    return _listed(tuple(f"{name} {count}" for name, count in per_class.items()))

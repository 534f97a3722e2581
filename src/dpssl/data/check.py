"""What is in a collection of images and what a run would make of it, as lines to read: `dpssl data check`.

The image files are decoded into the cache on the way, so a run that follows finds them there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from dpssl.config import DataConfig, default_preset
from dpssl.constants import UNLABELED
from dpssl.data.cache import DecodedImages, decoded_images
from dpssl.data.collection import Collection, read_collection
from dpssl.data.copies import find_copies
from dpssl.data.image_files import printable
from dpssl.data.own_images import as_dataset
from dpssl.data.readers import is_built_in, load_dataset
from dpssl.data.split import split_as_asked
from dpssl.data.table import Dataset

N_SHOWN = 5  # of a list


def describe_collection(settings: DataConfig, seed: int, progress: bool = False) -> Iterator[str]:
    """Lines on what `settings.data` holds; an InputError at the end where a run would refuse it."""
    path = Path(settings.data).expanduser()
    if not is_built_in(settings.data) and (path.is_dir() or (path.suffix == ".tar" and path.is_file())):
        collection = read_collection(path, settings.labels, settings.follow_links)
        decoded = decoded_images(collection.files, settings.image_size, progress=progress)
        yield from _describe_files(collection, decoded)
        dataset = as_dataset(collection, decoded, settings.max_damaged)
    else:
        dataset = load_dataset(settings.data, settings.labels, settings)
    yield from _describe_dataset(dataset)
    dataset, _ = split_as_asked(dataset, settings, seed)
    yield from _describe_run(settings, dataset)


def _describe_files(collection: Collection, decoded: DecodedImages) -> Iterator[str]:
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
    kept = [file.id for file in collection.files.files if file.id not in decoded.damaged]
    copies = find_copies(kept, decoded.digests)
    yield _row("exact copies", _describe_copies(copies))
    test = {file.id for file in collection.test_images}
    if test:
        labelled = set(collection.labels) - test
        crossing = [group for group in copies if test.intersection(group) and not test.issuperset(group)]
        yield _row("  across test", _describe_copies(crossing))
        yield _row("  and labelled", _describe_copies([group for group in crossing if labelled.intersection(group)]))
    by_case = Counter(name.casefold() for name in kept)
    n_alike = sum(count for count in by_case.values() if count > 1)
    if n_alike:
        yield _row("names", f"{n_alike:,} files have names that differ by case alone: not every disk can hold them")
    for name, reason in damaged.items():
        yield _row("damaged", f"{printable(name)}: {reason}")


def _describe_dataset(dataset: Dataset) -> Iterator[str]:
    height, width, channels = dataset.images.shape[1:]
    yield _row("images", f"{len(dataset.images):,} of {width}x{height}, {'grey' if channels == 1 else 'colour'}")
    yield _row("test images", f"{len(dataset.test_images):,}")
    yield _row("classes", f"{dataset.n_classes}: {_listed(dataset.class_names)}")
    for note in dataset.origin.notes:
        yield _row("note", note)


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


def _describe_copies(groups: list[list[str]]) -> str:
    if not groups:
        return "none"
    return f"{len(groups):,} groups, such as {' = '.join(map(printable, groups[0][:3]))}"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(printable, names[: 4 * N_SHOWN]))
    return f"{shown}, …" if len(names) > 4 * N_SHOWN else shown


def _balance(per_class: Mapping[str, int]) -> str:
    return _listed(tuple(f"{name} {count}" for name, count in per_class.items()))

"""What the flags --data and --labels stand for, as a `Dataset`: named sets, image files, .npz and .npy arrays.

Folders and TARs of image files are read by dpssl.data.own_images. An .npz comes in two kinds, told apart by the names
of its arrays:
- a benchmark, `train_x` and `train_y`: the labels are the truth, hidden until a split reveals some (-1: unknown);
- one's own images, `images` and `labels`: the labels are given to the run, -1 marks the images to label.
Both may add `test_x` with `test_y`, `class_names` and `ids`. `images` may come without `labels`, and as an .npy alone,
with a table of labels by id or row; without one they are an UnlabeledArray. Nothing is ever unpickled.
"""

from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.config import DataConfig
from dpssl.constants import UNLABELED
from dpssl.data.label_table import match_rows, read_label_table, sorted_classes
from dpssl.data.own_images import read_own_images
from dpssl.data.published.catalog import PUBLISHED
from dpssl.data.published.class_names import DIGITS
from dpssl.data.published.read import find_published, read_published
from dpssl.data.table import Dataset, Ids, Images, Labels, Origin, as_uint8_images, numbered_ids
from dpssl.errors import UNREADABLE_NPZ, InputError

MOST_CLASSES = 100_000  # a mistyped label would otherwise make that many classes
SUPPORTED = f"digits, {', '.join(PUBLISHED)}, a folder or .tar of images, an .npz of arrays, or an .npy of images"


class UnlabeledArray(InputError):
    """An array of images without labels: a run refuses it; `images` is for who describes them all the same."""

    def __init__(self, message: str, images: Images, ids: Ids | None = None) -> None:
        super().__init__(message)
        self.images = images
        self.ids = numbered_ids("image", len(images)) if ids is None else ids


def is_built_in(data: str) -> bool:
    """Whether `--data` is a name, not a path."""
    return data == "digits" or data in PUBLISHED


def load_dataset(
    data: str,
    labels: str = "",
    settings: DataConfig | None = None,
    n_workers: int = 0,
    progress: bool = False,
    only: Container[str] | None = None,
) -> Dataset:
    """The dataset that `--data` and `--labels` name. `settings` say how image files are read; the rest is as given.

    Of image files, `only` those of the ids given; arrays and published sets are always whole.
    """
    settings = settings or DataConfig()
    if labels and is_built_in(data):
        folder = f"; for the folder of that name write ./{data}" if Path(data).exists() else ""
        raise InputError(f"--labels {labels}: --data {data} has its own labels; leave one of the two out{folder}")
    if settings.image_size and is_built_in(data):
        raise InputError(f"--image-size {settings.image_size}: only for image files; {data} is taken as it is")
    if data == "digits":
        return _load_digits()
    if data in PUBLISHED:
        return _load_published(data)
    path = Path(data).expanduser()
    if not path.exists():
        raise InputError(f"--data {data}: no such file, folder or data set; supported: {SUPPORTED}")
    if path.is_dir() or path.suffix == ".tar":
        return read_own_images(path, labels, settings, n_workers, progress, only)
    if path.suffix not in (".npz", ".npy"):
        raise InputError(f"--data {data}: not a kind of file that can be read; supported: {SUPPORTED}")
    if settings.image_size:
        raise InputError(f"--image-size {settings.image_size}: only for image files; {data} is taken as it is")
    if path.suffix == ".npy":
        return _load_npy(path, labels)
    return _load_npz(path, path.stem, table=labels)


def _load_digits() -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise InputError("--data digits needs scikit-learn: pip install scikit-learn") from error
    bunch = load_digits()
    images = as_uint8_images(bunch.images / 16.0)  # 8 x 8 with 17 grey levels, 0..16
    return Dataset(
        name="digits",
        images=images,
        ids=numbered_ids("digit", len(images)),
        class_names=DIGITS,
        given_labels=np.full(len(images), UNLABELED, dtype=np.int64),
        truth=bunch.target.astype(np.int64),
        test_images=images[:0],
        test_ids=numbered_ids("test", 0),
        test_truth=np.empty(0, dtype=np.int64),
    )


def _load_published(name: str) -> Dataset:
    found = find_published(name)
    if isinstance(found, Path):
        return _load_npz(found, name, PUBLISHED[name].class_names)
    return read_published(found)


def _load_npy(path: Path, labels: str) -> Dataset:
    """Images alone, mapped into memory; the labels are in a table."""
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except UNREADABLE_NPZ as error:
        raise InputError(f"{path}: not a readable .npy of plain numbers ({error})") from error
    images = _images_of(path, path.name, array)
    if not labels:
        message = f"--data {path}: holds images without labels; give --labels FILE, by row number from 0"
        raise UnlabeledArray(message, images)
    return _label_by_table(path, images, labels)


def _label_by_table(
    path: Path, images: Images, labels: str, ids: Ids | None = None, class_names: tuple[str, ...] = ()
) -> Dataset:
    """Arrays of images whose labels are in a table: by id where there are ids, else by row."""
    table = Path(labels).expanduser()
    names = ids.tolist() if ids is not None else list(map(str, range(len(images))))
    given = match_rows(read_label_table(table), names, table, path)
    known = class_names or sorted_classes(given.values())
    for name, label in given.items():
        if label not in known:
            raise InputError(f"{table}: {name!r} is labelled {label!r}, but the classes are {', '.join(known)}")
    number = {label: row for row, label in enumerate(known)}
    numbers = np.array([number[given[name]] if name in given else UNLABELED for name in names], dtype=np.int64)
    return Dataset(
        name=path.stem,
        images=images,
        ids=numbered_ids("image", len(images)) if ids is None else ids,
        class_names=known,
        given_labels=numbers,
        truth=numbers,
        test_images=images[:0],
        test_ids=numbered_ids("test", 0),
        test_truth=np.empty(0, dtype=np.int64),
        origin=Origin(f"{path}: an array of images with the labels of {table.name}"),
    )


def _load_npz(path: Path, name: str, class_names: tuple[str, ...] = (), table: str = "") -> Dataset:
    arrays = _read_arrays(path)
    if table:
        if "images" not in arrays or "labels" in arrays:
            raise InputError(
                f"--labels {table}: {path} has the arrays {sorted(arrays)}; with a table of labels, expected images "
                "without labels"
            )
        return _label_by_table(
            path,
            _images_of(path, "images", arrays["images"]),
            table,
            _texts_of(path, "ids", arrays["ids"]) if "ids" in arrays else None,
            tuple(_texts_of(path, "class_names", arrays["class_names"])) if "class_names" in arrays else (),
        )
    if {"train_x", "train_y"} <= arrays.keys():
        images = _images_of(path, "train_x", arrays["train_x"])
        truth = _labels_of(path, "train_y", arrays["train_y"], len(images))
        given, prefix = np.full(len(truth), UNLABELED, dtype=np.int64), "train"
    elif {"images", "labels"} <= arrays.keys():
        images = _images_of(path, "images", arrays["images"])
        truth = given = _labels_of(path, "labels", arrays["labels"], len(images))
        prefix = "image"
    else:
        raise _without_labels(path, arrays)
    if ("test_x" in arrays) != ("test_y" in arrays):
        raise InputError(f"{path}: test_x and test_y come together; add the missing one or leave both out")
    test_images, test_truth = images[:0], np.empty(0, dtype=np.int64)
    if "test_x" in arrays:
        test_images = _images_of(path, "test_x", arrays["test_x"])
        test_truth = _labels_of(path, "test_y", arrays["test_y"], len(test_images))
    if "class_names" in arrays:
        class_names = tuple(_texts_of(path, "class_names", arrays["class_names"]).tolist())
    elif not class_names:
        labels = {"train_y" if prefix == "train" else "labels": truth, "test_y": test_truth}
        class_names = tuple(map(str, range(_count_classes(path, labels, len(images)))))
    return Dataset(
        name=name,
        images=images,
        ids=_texts_of(path, "ids", arrays["ids"]) if "ids" in arrays else numbered_ids(prefix, len(images)),
        class_names=class_names,
        given_labels=given,
        truth=truth,
        test_images=test_images,
        test_ids=numbered_ids("test", len(test_images)),
        test_truth=test_truth,
    )


def _without_labels(path: Path, arrays: dict[str, NDArray[Any]]) -> InputError:
    """What to say of an .npz that has images and no labels, or no images by a name that is known."""
    key = next((key for key in ("images", "train_x") if key in arrays), "")
    if not key:
        return InputError(
            f"{path}: has the arrays {sorted(arrays)}; expected train_x and train_y (a benchmark set) "
            f"or images and labels ({UNLABELED} for unlabelled), or images alone and --labels FILE"
        )
    ids = _texts_of(path, "ids", arrays["ids"]) if "ids" in arrays else None
    advice = (
        f"give --labels FILE, {'by row number from 0' if ids is None else 'by id'}, or add the array labels "
        f"({UNLABELED} for unlabelled)"
        if key == "images"
        else "add train_y, or rename train_x to images and give --labels FILE"
    )
    return UnlabeledArray(
        f"--data {path}: holds {key} without labels; {advice}", _images_of(path, key, arrays[key]), ids
    )


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except UNREADABLE_NPZ as error:
        raise InputError(
            f"{path}: not a readable .npz of plain arrays ({error}); write it again with numpy.savez"
        ) from error


def _images_of(path: Path, key: str, array: NDArray[Any]) -> NDArray[np.uint8]:
    try:
        return as_uint8_images(array)
    except InputError as error:
        raise InputError(f"{path}, array {key}: {error}") from error


def _labels_of(path: Path, key: str, array: NDArray[Any], n_images: int) -> Labels:
    if array.shape != (n_images,) or array.dtype.kind not in "iu":
        raise InputError(
            f"{path}, array {key}: has shape {array.shape} and dtype {array.dtype}; "
            f"expected one integer for each of the {n_images} images"
        )
    return array.astype(np.int64)


def _count_classes(path: Path, labels: dict[str, Labels], n_images: int) -> int:
    """One more than the highest label of the arrays. Every class needs an image, so there are no more than those."""
    most = min(n_images, MOST_CLASSES)
    for key, values in labels.items():
        if values.max(initial=UNLABELED) >= most:
            row = int(values.argmax())
            raise InputError(
                f"{path}, array {key}: row {row} is {values[row]}, which would make {values[row] + 1} classes of "
                f"{n_images} images; number the classes 0, 1, 2, …, and {UNLABELED} for unlabelled"
            )
    return int(max(values.max(initial=UNLABELED) for values in labels.values())) + 1


def _texts_of(path: Path, key: str, array: NDArray[Any]) -> NDArray[np.str_]:
    if array.ndim != 1 or array.dtype.kind not in "Uiu":
        raise InputError(
            f"{path}, array {key}: has shape {array.shape} and dtype {array.dtype}; expected a row of texts"
        )
    return array.astype(np.str_)

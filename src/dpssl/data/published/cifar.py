"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), the binary and the Python version.

Comes in: the files. Goes out: images and labels. An image is 3,072 bytes: the red, green and blue plane, row by row. A
record of the binary version is the label (CIFAR-100: the coarse, then the fine one) and an image; a Python file is a
pickled dict of the labels and one array of images.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.data.published.catalog import CIFAR10_TEST, CIFAR10_TRAIN
from dpssl.data.published.files import SetFiles, damaged, read_whole
from dpssl.data.published.parts import Part, check_labels
from dpssl.data.published.safe_pickle import read_pickle
from dpssl.data.table import Images
from dpssl.errors import InputError

SIDE = 32
IMAGE_BYTES = 3 * SIDE * SIDE
LABEL_KEYS = {"cifar10": b"labels", "cifar100": b"fine_labels", "cifar100-coarse": b"coarse_labels"}


def read_binary(files: SetFiles, name: str, n_classes: int) -> tuple[Part, Part]:
    """Train and test part of the binary version."""
    if name == "cifar10":
        train = [_read_records(files, f"{batch}.bin", 1, 0, n_classes) for batch in CIFAR10_TRAIN]
        return _joined(train), _read_records(files, f"{CIFAR10_TEST}.bin", 1, 0, n_classes)
    column = 0 if name == "cifar100-coarse" else 1
    return (
        _read_records(files, "train.bin", 2, column, n_classes),
        _read_records(files, "test.bin", 2, column, n_classes),
    )


def read_python(files: SetFiles, name: str, n_classes: int) -> tuple[Part, Part]:
    """Train and test part of the Python version."""
    train, test = (CIFAR10_TRAIN, CIFAR10_TEST) if name == "cifar10" else (("train",), "test")
    key = LABEL_KEYS[name]
    return _joined([_read_batch(files, batch, key, n_classes) for batch in train]), _read_batch(
        files, test, key, n_classes
    )


def _read_records(files: SetFiles, file: str, n_labels: int, column: int, n_classes: int) -> Part:
    content = read_whole(files, file)
    record = n_labels + IMAGE_BYTES
    if not content or len(content) % record:
        raise damaged(files, file, f"has {len(content):,} bytes, no whole number of records of {record:,}: cut short")
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    labels = check_labels(files, file, records[:, column], n_classes)
    return Part(_as_images(records[:, n_labels:]), labels)


def _read_batch(files: SetFiles, file: str, label_key: bytes, n_classes: int) -> Part:
    try:
        batch = read_pickle(read_whole(files, file))
    except InputError as error:
        if str(error).startswith(files.place(file)):
            raise
        raise damaged(files, file, str(error)) from error
    pixels, labels = batch.get(b"data"), batch.get(label_key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != IMAGE_BYTES or not len(pixels):
        shape = pixels.shape if isinstance(pixels, np.ndarray) else None
        raise damaged(files, file, f"its `data` has the shape {shape}; expected (n, {IMAGE_BYTES})")
    if not _is_list_of_ints(labels) or len(labels) != len(pixels):
        raise damaged(files, file, f"its `{label_key.decode()}` are not one number for each of {len(pixels):,} images")
    return Part(_as_images(pixels), check_labels(files, file, np.array(labels), n_classes))


def _is_list_of_ints(labels: Any) -> bool:
    return isinstance(labels, list) and all(type(label) is int for label in labels)


def _as_images(planes: NDArray[np.uint8]) -> Images:
    return np.ascontiguousarray(planes.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def _joined(parts: list[Part]) -> Part:
    return Part(np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts]))

"""STL-10 (Coates, Ng and Lee, 2011): 5,000 labelled, 100,000 unlabelled and 8,000 test images of 96 pixels, ten folds.

Comes in: the files of `stl10_binary`. Goes out: images, labels and folds. An image is 27,648 bytes: the red, green and
blue plane, column by column. Labels are 1 to 10. A line of `fold_indices.txt` lists the labelled images of one fold.
"""

import os

import numpy as np

from dpssl.constants import UNLABELED
from dpssl.data.published.files import SetFiles, damaged, open_file, read_up_to, read_whole
from dpssl.data.published.parts import Part, check_labels
from dpssl.data.table import Folds, Images

SIDE = 96
IMAGE_BYTES = 3 * SIDE * SIDE
BLOCK_IMAGES = 1000  # transposed at a time
MOST_BYTES = 4 << 30  # of one file; the unlabelled images have 2.8 GB


def read_train(files: SetFiles, n_classes: int) -> tuple[Part, Folds]:
    """The labelled images followed by the unlabelled ones (label -1), and the folds as rows of the former."""
    labels = _read_labels(files, "train_y.bin", n_classes)
    n_labeled, n_unlabeled = _count_images(files, "train_X.bin"), _count_images(files, "unlabeled_X.bin")
    _check_one_each(files, "train_y.bin", len(labels), n_labeled)
    images = np.empty((n_labeled + n_unlabeled, SIDE, SIDE, 3), np.uint8)
    _read_images(files, "train_X.bin", images[:n_labeled])
    _read_images(files, "unlabeled_X.bin", images[n_labeled:])
    truth = np.concatenate([labels, np.full(n_unlabeled, UNLABELED, np.int64)])
    return Part(images, truth), _read_folds(files, n_labeled)


def read_test(files: SetFiles, n_classes: int) -> Part:
    labels = _read_labels(files, "test_y.bin", n_classes)
    n_images = _count_images(files, "test_X.bin")
    _check_one_each(files, "test_y.bin", len(labels), n_images)
    images = np.empty((n_images, SIDE, SIDE, 3), np.uint8)
    _read_images(files, "test_X.bin", images)
    return Part(images, labels)


def _read_labels(files: SetFiles, file: str, n_classes: int) -> np.ndarray:
    content = np.frombuffer(read_whole(files, file), np.uint8).astype(np.int64)
    return check_labels(files, file, content - 1, n_classes)


def _count_images(files: SetFiles, file: str) -> int:
    with open_file(files, file) as content:
        n_bytes = content.seek(0, os.SEEK_END)
    if not n_bytes or n_bytes % IMAGE_BYTES:
        raise damaged(files, file, f"has {n_bytes:,} bytes, no whole number of images of {IMAGE_BYTES:,}: cut short")
    if n_bytes > MOST_BYTES:  # before memory is reserved for it
        raise damaged(files, file, f"promises {n_bytes:,} bytes")
    return n_bytes // IMAGE_BYTES


def _read_images(files: SetFiles, file: str, into: Images) -> None:
    """Block by block: the whole set is 3 GB, and a second copy of it would not fit everywhere."""
    with open_file(files, file) as content:
        for start in range(0, len(into), BLOCK_IMAGES):
            block = into[start : start + BLOCK_IMAGES]
            planes = np.frombuffer(read_up_to(content, len(block) * IMAGE_BYTES), np.uint8)
            if planes.size < block.size:
                raise damaged(files, file, "is cut short")
            for channel in range(3):  # a third of the time of one transposition of all three
                block[..., channel] = planes.reshape(-1, 3, SIDE, SIDE)[:, channel].swapaxes(1, 2)


def _check_one_each(files: SetFiles, file: str, n_labels: int, n_images: int) -> None:
    if n_labels != n_images:
        raise damaged(files, file, f"has {n_labels:,} labels for {n_images:,} images")


def _read_folds(files: SetFiles, n_labeled: int) -> Folds:
    lines = read_whole(files, "fold_indices.txt").decode("ascii", errors="replace").splitlines()
    folds = []
    for number, line in enumerate(lines, 1):
        try:
            rows = np.unique([int(word) for word in line.split()])
        except ValueError as error:
            raise damaged(files, "fold_indices.txt", f"line {number} is no list of numbers ({error})") from error
        if not rows.size or rows[0] < 0 or rows[-1] >= n_labeled:
            raise damaged(files, "fold_indices.txt", f"line {number} names rows outside the {n_labeled:,} labelled")
        folds.append(rows.astype(np.int64))
    return tuple(folds)

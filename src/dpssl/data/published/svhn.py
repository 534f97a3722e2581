"""SVHN, cropped digits (Netzer et al., 2011): `train_32x32.mat`, `test_32x32.mat` and `extra_32x32.mat`, MATLAB 5.

Comes in: the files. Goes out: images and labels. `X` is (32, 32, 3, n) uint8 and `y` is (n, 1), where 10 stands for the
digit 0.
"""

import zlib

import numpy as np

from dpssl.data.published.files import SetFiles, damaged, read_whole
from dpssl.data.published.mat5 import read_mat5
from dpssl.data.published.parts import Part

SIDE = 32
MOST_BYTES = 2 << 30  # extra_32x32.mat has 1.3 GB, and 1.6 GB uncompressed


def read_mat(files: SetFiles, file: str, n_classes: int) -> Part:
    """One of the three files."""
    content = read_whole(files, file, MOST_BYTES)
    try:
        arrays = read_mat5(content, ("X", "y"), MOST_BYTES)
    except (ValueError, zlib.error) as error:
        raise damaged(files, file, f"is no readable MATLAB 5 file ({error})") from error
    del content  # 1.3 GB less while the images are turned
    images, labels = arrays.get("X"), arrays.get("y")
    if images is None or images.dtype != np.uint8 or images.shape[:-1] != (SIDE, SIDE, 3) or not images.shape[-1]:
        raise damaged(files, file, f"its X is no uint8 array of ({SIDE}, {SIDE}, 3, n)")
    n_images = images.shape[-1]
    if labels is None or labels.size != n_images or not np.isin(labels, np.arange(1, n_classes + 1)).all():
        raise damaged(files, file, f"its y is not a label from 1 to {n_classes} for each of {n_images:,} images")
    digits = labels.ravel().astype(np.int64) % n_classes
    return Part(np.ascontiguousarray(images.transpose(3, 0, 1, 2), dtype=np.uint8), digits)

"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017): IDX files, plain or compressed with gzip.

Comes in: the files. Goes out: images and labels. An IDX file starts with 0, 0, the type of its numbers (8: bytes), how
many dimensions it has, and the length of each as four bytes, the highest first; then come the numbers, row by row.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from dpssl.data.published.files import MOST_BYTES, SetFiles, damaged, open_file, read_up_to
from dpssl.data.published.parts import Part, check_labels

BYTES = 8
SIDE = 28


def read_part(files: SetFiles, part: str, n_classes: int) -> Part:
    """`part` is `train` or `t10k`."""
    image_file, label_file = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    images, labels = _read_idx(files, image_file, 3), _read_idx(files, label_file, 1)
    if images.shape[1:] != (SIDE, SIDE) or not len(images):
        raise damaged(files, image_file, f"has the shape {images.shape}; expected (n, {SIDE}, {SIDE})")
    if len(labels) != len(images):
        raise damaged(files, label_file, f"has {len(labels):,} labels for {len(images):,} images")
    return Part(images[..., None], check_labels(files, label_file, labels, n_classes))


def _read_idx(files: SetFiles, file: str, n_dimensions: int) -> NDArray[np.uint8]:
    with open_file(files, file) as content:
        header = read_up_to(content, 4 + 4 * n_dimensions)
        if header[:4] != bytes([0, 0, BYTES, n_dimensions]) or len(header) < 4 + 4 * n_dimensions:
            raise damaged(files, file, f"does not start as an IDX file of bytes in {n_dimensions} dimensions does")
        shape = struct.unpack(f">{n_dimensions}I", header[4:])
        n_bytes = int(np.prod(shape, dtype=object))
        if n_bytes > MOST_BYTES:
            raise damaged(files, file, f"promises {n_bytes:,} bytes")
        data = read_up_to(content, n_bytes + 1)
    if len(data) != n_bytes:
        size = "more" if len(data) > n_bytes else f"{len(data):,}"
        raise damaged(files, file, f"promises {n_bytes:,} bytes and has {size}")
    return np.frombuffer(data, np.uint8).reshape(shape)

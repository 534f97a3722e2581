"""What a reader of published files returns: images with their labels, checked against the classes of the set."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.data.published.files import SetFiles, damaged
from dpssl.data.table import Images, Labels


@dataclass(frozen=True)
class Part:
    """One part of a published set: train, test, extra or unlabelled."""

    images: Images  # (n, H, W, channels)
    labels: Labels  # (n,)


def check_labels(files: SetFiles, file: str, labels: NDArray[Any], n_classes: int) -> Labels:
    """`labels` as they count here, from 0; one outside is a damaged file."""
    wide = labels.astype(np.int64)
    outside = np.flatnonzero((wide < 0) | (wide >= n_classes))
    if outside.size:
        row = int(outside[0])
        raise damaged(files, file, f"label {wide[row]} of row {row} is outside the {n_classes} classes")
    return wide

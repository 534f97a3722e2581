"""The one form in which images enter every step: a table of uint8 pixels with ids, given labels and, apart, the truth.

In: arrays of whatever kind a reader or a caller has. Out: a `Dataset` that is known to be consistent, so nothing after
it checks pixels, ids or labels again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import UNLABELED
from dpssl.errors import InputError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Ids = NDArray[np.str_]
Folds = tuple[NDArray[np.int64], ...]


@dataclass(frozen=True)
class Origin:
    """What is on record of where a dataset's images came from."""

    statement: str = ""  # in a line: what was found and what was made of it
    decoding: Mapping[str, Any] = field(default_factory=dict)  # how image files became pixels
    damaged: Mapping[str, str] = field(default_factory=dict)  # file -> why it was left out
    n_passed_over: int = 0  # image files there that are not among those asked for
    notes: tuple[str, ...] = ()  # what the user should know before training


@dataclass(frozen=True)
class Dataset:
    """n images to annotate and m held-out test images of C classes.

    `truth` serves evaluation and the choice of which labels of a benchmark set to reveal; nothing that trains, selects
    or calibrates may read it. What a run may know is `given_labels`.
    """

    name: str
    images: Images  # (n, H, W, channels), channels 1 or 3: labelled and unlabelled alike
    ids: Ids  # (n,) unique, also against test_ids
    class_names: tuple[str, ...]  # C
    given_labels: Labels  # (n,) -1 where the user gave none; a benchmark set: all -1 until a split reveals some
    truth: Labels  # (n,) -1 where unknown
    test_images: Images  # (m, H, W, channels), m may be 0
    test_ids: Ids  # (m,)
    test_truth: Labels  # (m,)
    folds: Folds = ()  # rows of images, where the set publishes choices of its labelled ones
    origin: Origin = field(default_factory=Origin)

    def __post_init__(self) -> None:
        n, m = len(self.images), len(self.test_images)
        if n == 0:
            raise InputError(f"{self.name}: there are no images; give at least one unlabelled image and one per class")
        if len(self.class_names) < 2:
            only = f"only the class {self.class_names[0]!r}" if self.class_names else "no class"
            raise InputError(f"{self.name}: {only} found, but labelling needs at least 2")
        if len(set(self.class_names)) < len(self.class_names):
            raise InputError(f"{self.name}: class names must differ, but some repeat: {list(self.class_names)}")
        if m and self.test_images.shape[1:] != self.images.shape[1:]:
            raise InputError(
                f"{self.name}: test images are {_size(self.test_images.shape[1:])}, the others "
                f"{_size(self.images.shape[1:])}; resize one of the two sets"
            )
        columns = {
            "ids": (self.ids, n),
            "given_labels": (self.given_labels, n),
            "truth": (self.truth, n),
            "test_ids": (self.test_ids, m),
            "test_truth": (self.test_truth, m),
        }
        for column, (values, rows) in columns.items():
            if values.shape != (rows,):
                raise InputError(
                    f"{self.name}: {column} has shape {values.shape} for {rows} images; give one per image"
                )
        every_id = [*self.ids.tolist(), *self.test_ids.tolist()]
        if len(set(every_id)) < len(every_id):
            name, count = Counter(every_id).most_common(1)[0]
            raise InputError(f"{self.name}: id {str(name)!r} occurs {count} times; ids must be unique")
        self._check_labels("given_labels", self.given_labels, self.ids)
        self._check_labels("truth", self.truth, self.ids)
        self._check_labels("test_truth", self.test_truth, self.test_ids)

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    def _check_labels(self, column: str, labels: Labels, ids: Ids) -> None:
        outside = np.flatnonzero((labels < UNLABELED) | (labels >= self.n_classes))
        if outside.size:
            row = int(outside[0])
            raise InputError(
                f"{self.name}: {column} of row {row} (id {str(ids[row])!r}) is {labels[row]}; "
                f"labels go from 0 to {self.n_classes - 1}, and {UNLABELED} means unlabelled"
            )


def numbered_ids(prefix: str, count: int) -> Ids:
    """Ids for images that have none: `train-00000`, `train-00001`, …"""
    width = max(5, len(str(count - 1)))
    return np.array([f"{prefix}-{number:0{width}d}" for number in range(count)], dtype=str)


def as_uint8_images(images: Any) -> Images:
    """Pixels of any usual kind as uint8 (n, H, W, channels).

    Accepted: uint8 or other integers in 0..255, or floats in [0, 1], as one array (n, H, W) or (n, H, W, 1 or 3) or a
    sequence of equally sized (H, W) or (H, W, 1 or 3) arrays.
    """
    pixels = images if isinstance(images, np.ndarray) else _stack(images)  # (n, H, W) or (n, H, W, channels)
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.ndim != 4 or pixels.shape[3] not in (1, 3):
        raise InputError(
            f"images have shape {pixels.shape}; expected (n, height, width) or (n, height, width, channels) "
            "with 1 or 3 channels, channels last"
        )
    if 0 in pixels.shape[1:3]:
        raise InputError(f"images have shape {pixels.shape}: no pixels")
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    if pixels.dtype.kind in "iu":
        _check_rows((pixels >= 0) & (pixels <= 255), pixels, "integer pixels must lie in 0..255")
        return np.ascontiguousarray(pixels, dtype=np.uint8)
    if pixels.dtype.kind == "f":
        _check_rows(np.isfinite(pixels), pixels, "pixels must be finite: repair or drop that image")
        _check_rows(
            (pixels >= 0) & (pixels <= 1), pixels, "float pixels must lie in [0, 1]: rescale, or pass integers 0..255"
        )
        return np.ascontiguousarray(np.rint(pixels * 255.0), dtype=np.uint8)
    raise InputError(f"images have dtype {pixels.dtype}; expected uint8, integers in 0..255 or floats in [0, 1]")


def _stack(images: Any) -> NDArray[Any]:
    if not isinstance(images, Sequence):
        return np.asarray(images)
    if len(images) == 0:
        raise InputError("there are no images: the list is empty")
    arrays = []
    for row, image in enumerate(images):
        try:
            arrays.append(np.asarray(image))
        except ValueError as error:
            raise InputError(f"image {row} is no array of pixels ({error})") from error
    for row, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise InputError(
                f"image {row} is {_size(array.shape)}, image 0 is {_size(arrays[0].shape)}; resize all to one size"
            )
        if array.dtype != arrays[0].dtype:
            raise InputError(
                f"image {row} has dtype {array.dtype}, image 0 has {arrays[0].dtype}; use one kind for all"
            )
    return np.stack(arrays)


def _check_rows(good: NDArray[np.bool_], pixels: NDArray[Any], rule: str) -> None:
    if not good.all():
        first = np.unravel_index(int(np.argmin(good)), good.shape)
        raise InputError(f"image {first[0]} has a pixel of value {pixels[first]}; {rule}")


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"

"""The image table: which pixels, ids and labels are let in, and what is said about the others."""

import numpy as np
import pytest

from dpssl.data.table import Dataset, as_uint8_images
from dpssl.errors import InputError


def a_dataset(**changes: object) -> Dataset:
    """Four 2 x 2 grey images of two classes and one test image."""
    columns: dict[str, object] = {
        "name": "tiny",
        "images": np.zeros((4, 2, 2, 1), dtype=np.uint8),
        "ids": np.array(["a", "b", "c", "d"]),
        "class_names": ("cat", "dog"),
        "given_labels": np.array([0, 1, -1, -1]),
        "truth": np.array([0, 1, -1, -1]),
        "test_images": np.zeros((1, 2, 2, 1), dtype=np.uint8),
        "test_ids": np.array(["t"]),
        "test_truth": np.array([1]),
    }
    return Dataset(**(columns | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (np.array([[[0, 7], [200, 255]]], dtype=np.uint8), [0, 7, 200, 255]),
        (np.array([[[0, 7], [200, 255]]], dtype=np.int64), [0, 7, 200, 255]),
        (np.array([[[0.0, 0.5], [0.998, 1.0]]], dtype=np.float32), [0, 128, 254, 255]),
        ([np.array([[0, 7], [200, 255]], dtype=np.uint8)], [0, 7, 200, 255]),
        ([[[0, 7], [200, 255]]], [0, 7, 200, 255]),
    ],
)
def test_usual_kinds_of_pixels_become_uint8(images: object, expected: list[int]) -> None:
    converted = as_uint8_images(images)
    assert converted.dtype == np.uint8
    assert converted.shape == (1, 2, 2, 1)
    assert converted.ravel().tolist() == expected


def test_every_grey_level_survives_the_way_through_floats() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    for dtype in (np.float32, np.float64):
        assert np.array_equal(as_uint8_images(levels / dtype(255)), levels)


def test_colour_images_keep_their_channels() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    assert np.array_equal(as_uint8_images(images), images)
    assert np.array_equal(as_uint8_images(list(images)), images)


def with_pixel(value: float, dtype: type = np.float64) -> np.ndarray:
    images = np.zeros((5, 2, 2), dtype=dtype)
    images[3, 1, 0] = value
    return images


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (with_pixel(np.nan), r"image 3 .*nan.*finite"),
        (with_pixel(np.inf), r"image 3 .*inf.*finite"),
        (with_pixel(-0.5), r"image 3 .*-0\.5.*\[0, 1\]"),
        (with_pixel(200.0), r"image 3 .*200\.0.*rescale"),
        (with_pixel(-1, np.int32), r"image 3 .*-1;.*0\.\.255"),
        (with_pixel(256, np.int32), r"image 3 .*256;.*0\.\.255"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], r"image 1 is 2x3, image 0 is 2x2; resize"),
        ([np.zeros((2, 2)), np.zeros((2, 2), dtype=np.uint8)], r"image 1 has dtype uint8, image 0 has float64"),
        ([[[1, 2], [3]]], r"image 0 is no array"),
        ([], r"no images"),
        (np.zeros((2, 2)), r"shape \(2, 2\)"),
        (np.zeros((1, 2, 2, 3, 1)), r"shape \(1, 2, 2, 3, 1\)"),
        (np.zeros((4, 3, 8, 8)), r"channels last"),
        (np.zeros((4, 0, 8)), r"no pixels"),
        (np.array([[["a"]]]), r"dtype <U1"),
        (np.zeros((1, 2, 2), dtype=bool), r"dtype bool"),
    ],
)
def test_unusable_pixels_are_named(images: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_uint8_images(images)


def test_a_consistent_dataset_is_accepted() -> None:
    assert a_dataset().n_classes == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"given_labels": np.array([0, 2, -1, -1])}, r"given_labels of row 1 \(id 'b'\) is 2; labels go from 0 to 1"),
        ({"given_labels": np.array([0, 1, -2, -1])}, r"given_labels of row 2 \(id 'c'\) is -2"),
        ({"truth": np.array([0, 1, 5, -1])}, r"truth of row 2"),
        ({"test_truth": np.array([9])}, r"test_truth of row 0 \(id 't'\) is 9"),
        ({"ids": np.array(["a", "b", "b", "d"])}, r"id 'b' occurs 2 times"),
        ({"test_ids": np.array(["d"])}, r"id 'd' occurs 2 times"),
        ({"ids": np.array(["a", "b"])}, r"ids has shape \(2,\) for 4 images"),
        ({"class_names": ("cat", "cat")}, r"class names must differ"),
        ({"class_names": ("cat",)}, r"at least 2"),
        ({"test_images": np.zeros((1, 3, 2, 1), dtype=np.uint8)}, r"test images are 3x2x1, the others 2x2x1"),
    ],
)
def test_an_inconsistent_dataset_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        a_dataset(**changes)


def test_a_dataset_without_images_is_refused() -> None:
    nothing = np.empty(0, dtype=np.int64)
    with pytest.raises(InputError, match="no images"):
        a_dataset(
            images=np.zeros((0, 2, 2, 1), dtype=np.uint8),
            ids=np.empty(0, dtype=str),
            given_labels=nothing,
            truth=nothing,
        )

"""MATLAB 5 files as scipy writes them, and damaged in every way a few bits can."""

import io
import zlib
from typing import Any

import numpy as np
import pytest
import scipy.io

from dpssl.data.published.mat5 import read_mat5

DRAWS = np.random.default_rng(0)
ARRAYS = {
    "X": DRAWS.integers(0, 256, (4, 3, 2, 5), dtype=np.uint8),
    "y": np.arange(5.0)[:, None],
    "short": np.array([[3]], np.uint8),
    "a_name_longer_than_eight": DRAWS.integers(-9, 9, (2, 7)).astype(np.int16),
    "empty": np.zeros((0, 3), np.uint8),
}


def saved(compressed: bool, arrays: dict[str, Any] = ARRAYS) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, arrays, do_compression=compressed)
    return file.getvalue()


@pytest.mark.parametrize("compressed", [True, False])
def test_what_scipy_writes_is_read(compressed: bool) -> None:
    found = read_mat5(saved(compressed), tuple(ARRAYS), 1 << 20)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(found[name], array)
        assert found[name].shape == array.shape
    assert read_mat5(saved(compressed), ("y",), 1 << 20).keys() == {"y"}


@pytest.mark.parametrize("compressed", [True, False])
def test_damage_is_an_error_or_other_numbers(compressed: bool) -> None:
    whole, n_errors = saved(compressed), 0
    for end in range(0, len(whole), 7):
        try:
            found = read_mat5(whole[:end], tuple(ARRAYS), 1 << 20)
        except (ValueError, zlib.error):
            n_errors += 1
            continue
        assert found.keys() < ARRAYS.keys(), f"whole in spite of being cut at {end}"
    for _ in range(3000):
        flipped = bytearray(whole)
        for at in DRAWS.integers(100, len(whole), DRAWS.integers(1, 4)):
            flipped[at] ^= 1 << int(DRAWS.integers(8))
        try:
            found = read_mat5(bytes(flipped), tuple(ARRAYS), 1 << 20)
        except (ValueError, zlib.error):
            n_errors += 1
            continue
        assert found.keys() <= ARRAYS.keys()
    assert n_errors > 100


def test_an_array_may_not_grow_without_end() -> None:
    bomb = saved(compressed=True, arrays={"X": np.zeros((1 << 12, 1 << 10), np.uint8)})
    assert len(bomb) < 1 << 14
    with pytest.raises(ValueError, match="too large"):
        read_mat5(bomb, ("X",), 1 << 20)


@pytest.mark.parametrize("value", [1j * np.ones((2, 2)), np.array(["text"]), {"a": 1}, np.array([1, "a"], object)])
def test_other_kinds_of_arrays_are_refused(value: Any) -> None:
    content = saved(False, {"X": value, "y": np.ones((2, 1))})
    with pytest.raises(ValueError, match="array"):
        read_mat5(content, ("X",), 1 << 20)
    assert read_mat5(content, ("y",), 1 << 20)["y"].tolist() == [[1], [1]]

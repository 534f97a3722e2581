"""Published files that are cut short, overwritten or hostile: one message that names the file, and nothing runs."""

import contextlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl.data.published.safe_pickle import read_pickle
from dpssl.data.readers import load_dataset
from dpssl.errors import InputError

FORMS = {
    "cifar10-binary": ("cifar10", "cifar-10-batches-bin/data_batch_3.bin"),
    "cifar10-python": ("cifar10", "cifar-10-batches-py/data_batch_3"),
    "cifar100-binary": ("cifar100", "cifar-100-binary/test.bin"),
    "cifar100-python": ("cifar100", "cifar-100-python/test"),
    "svhn": ("svhn", "svhn/train_32x32.mat"),
    "stl10": ("stl10", "stl10_binary/unlabeled_X.bin"),
    "mnist": ("mnist", "mnist/train-images-idx3-ubyte"),
    "fashion-mnist": ("fashion-mnist", "fashion-mnist/t10k-labels-idx1-ubyte.gz"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kept", [0, 1, 10, 0.47, 0.999])
def test_a_file_cut_short_is_named(form: str, kept: float, write_set: Callable[..., Any], data_folder: Path) -> None:
    write_set(form)
    name, file = FORMS[form]
    path = data_folder / file
    content = path.read_bytes()
    path.write_bytes(content[: int(kept if kept >= 1 else kept * len(content))])
    with pytest.raises(InputError, match=rf"{path.name}: .*`dpssl data fetch {name}`"):
        load_dataset(name)


@pytest.mark.parametrize("form", FORMS)
def test_a_missing_file_is_named(form: str, write_set: Callable[..., Any], data_folder: Path) -> None:
    write_set(form)
    name, file = FORMS[form]
    path = data_folder / file
    path.unlink()
    with pytest.raises(InputError, match=rf"dpssl data fetch {name}"):
        load_dataset(name)


@pytest.mark.parametrize("form", FORMS)
def test_flipped_bits_give_images_or_an_error(form: str, write_set: Callable[..., Any], data_folder: Path) -> None:
    """Most flips are in pixels, which nothing but a checksum could notice; the ends hold the structure."""
    write_set(form)
    name, file = FORMS[form]
    path = data_folder / file
    whole = path.read_bytes()
    draws = np.random.default_rng(0)
    n_flips = {"stl10": 3, "cifar100-python": 20}.get(form, 40)
    ends = np.concatenate([np.arange(min(600, len(whole))), np.arange(max(0, len(whole) - 300), len(whole))])
    for at in draws.choice(ends, n_flips):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << int(draws.integers(8))
        path.write_bytes(flipped)
        with contextlib.suppress(InputError):
            assert len(load_dataset(name).images)


@pytest.mark.parametrize("kept", [0, 5, 0.3, 0.9])
def test_an_archive_cut_short_is_named(kept: float, write_set: Callable[..., Any], data_folder: Path) -> None:
    write_set("cifar10-python", "cifar-10-python.tar.gz")
    path = data_folder / "cifar-10-python.tar.gz"
    content = path.read_bytes()
    path.write_bytes(content[: int(kept if kept >= 1 else kept * len(content))])
    with pytest.raises(InputError, match=r"cifar-10-python\.tar\.gz .*`dpssl data fetch cifar10`"):
        load_dataset("cifar10")


def test_a_file_that_promises_too_much_reserves_no_memory(write_set: Callable[..., Any], data_folder: Path) -> None:
    write_set("stl10")
    os.truncate(data_folder / "stl10_binary" / "unlabeled_X.bin", 27_648 << 21)  # a hole: takes no space on the disk
    with pytest.raises(InputError, match=r"unlabeled_X\.bin: promises 57,982,058,496 bytes"):
        load_dataset("stl10")


def test_labels_outside_the_classes_are_named(write_set: Callable[..., Any], data_folder: Path) -> None:
    write_set("cifar10-binary")
    path = data_folder / "cifar-10-batches-bin" / "data_batch_2.bin"
    content = bytearray(path.read_bytes())
    content[3073 * 4] = 10
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"data_batch_2\.bin: label 10 of row 4 is outside the 10 classes"):
        load_dataset("cifar10")


def test_folds_outside_the_labelled_images_are_named(write_set: Callable[..., Any], data_folder: Path) -> None:
    write_set("stl10")
    path = data_folder / "stl10_binary" / "fold_indices.txt"
    for line in ("1 2 50000", "1 two", "", "-1 4"):
        path.write_text(f"0 1 2\n{line}\n")
        with pytest.raises(InputError, match=r"fold_indices\.txt: line 2 "):
            load_dataset("stl10")


# Pickles


class _Runs:
    """Unpickling this runs a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


HOSTILE = {
    "os.system": _Runs(os.system, "touch ran"),
    "eval": _Runs(eval, "__import__('os').mkdir('ran')"),
    "nested": {b"data": [{b"deep": (1, _Runs(os.mkdir, "ran"))}]},
    "getattr": _Runs(getattr, _Runs(__import__, "os"), "mkdir"),
    "an array of objects": np.array([_Runs(os.mkdir, "ran")], dtype=object),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(name: str, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="which the published file does not contain"):
        read_pickle(pickle.dumps(HOSTILE[name], protocol))
    assert list(tmp_path.iterdir()) == []


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n"
BY_HAND = {
    "a name called at once": b"cos\nsystem\n(U\x04ranntR.",
    "INST": b"(U\x03ranios\nmkdir\n.",
    "OBJ": b"(cos\nmkdir\nU\x03rano.",
    "an extension code": b"\x80\x02\x82\x01.",
    "a persistent id": b"U\x01aQ.",
    "numpy's name with another class": ARRAY + b"cnumpy\ndtype\nK\x00\x85U\x01b\x87R.",
    "a dtype of objects": b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R.",
    "a number called": b"K\x01K\x01\x85R.",
    "an array called": ARRAY + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R)R.",
    "state for a name": b"cnumpy\nndarray\n)b.",
    "a number with a state": b"K\x01)b.",
    "no mark": b"K\x01K\x02t.",
    "an empty stack": b"\x85.",
    "nothing at all": b".",
    "two values": b"K\x01K\x02.",
    "a list": b"].",
    "a value never put": b"h\x07.",
    "a key that is a list": b"}]K\x01s.",
    "an odd number of items": b"}(U\x01au.",
    "no end": b"}",
    "a shape too large": (
        b"}U\x04data" + ARRAY + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86"
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R\x89U\x01xtbs."
    ),
    "an index that would reserve gigabytes": b"]r\xff\xff\xff\x7f.",
    "a text that would reserve gigabytes": b"T\xff\xff\xff\x7fa.",
}


@pytest.mark.parametrize("name", BY_HAND)
def test_pickles_that_are_no_data_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        read_pickle(BY_HAND[name])


def test_a_hostile_file_in_the_set_is_named(write_set: Callable[..., Any], data_folder: Path) -> None:
    write_set("cifar10-python")
    path = data_folder / "cifar-10-batches-py" / "data_batch_1"
    path.write_bytes(pickle.dumps(_Runs(os.mkdir, str(data_folder / "ran")), 2))
    with pytest.raises(InputError, match=r"data_batch_1: asks for 'posix\.mkdir'.*dpssl data fetch cifar10"):
        load_dataset("cifar10")
    assert not (data_folder / "ran").exists()


@pytest.mark.parametrize("change", [{b"data": [1]}, {b"labels": [0]}, {b"labels": [b"0"] * 4}, {b"labels": None}])
def test_a_batch_without_its_parts_is_named(
    change: dict[bytes, Any], write_set: Callable[..., Any], data_folder: Path, pickled: Callable[[Any], bytes]
) -> None:
    write_set("cifar10-python")
    path = data_folder / "cifar-10-batches-py" / "data_batch_5"
    batch = {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, 3]}
    path.write_bytes(pickled(batch | change))
    with pytest.raises(InputError, match=rf"data_batch_5: its `{next(iter(change)).decode()}`"):
        load_dataset("cifar10")

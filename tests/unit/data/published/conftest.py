"""Small published sets in their true formats, written byte by byte as their publishers did."""

import gzip
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.io

Files = dict[str, bytes]


class Python2Pickler(pickle._Pickler):
    """Protocol 2 as Python 2's cPickle wrote it: byte strings as BINSTRING, and arrays under numpy's old names."""

    dispatch: ClassVar[Any] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_bytes(self, text: bytes) -> None:
        short = len(text) < 256
        self.write((b"U" + bytes([len(text)]) if short else b"T" + struct.pack("<i", len(text))) + text)  # type: ignore[attr-defined]
        self.memoize(text)  # type: ignore[attr-defined]

    dispatch[bytes] = save_bytes

    def save_array(self, array: np.ndarray) -> None:
        """What `ndarray.__reduce__` gave: _reconstruct(ndarray, (0,), 'b'), then the state."""
        save, write = self.save, self.write  # type: ignore[attr-defined]
        write(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n")
        save((0,))
        save(b"b")
        write(b"\x87R(K\x01")
        save(array.shape)
        write(b"cnumpy\ndtype\n")
        save(b"u1")
        write(b"K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb")
        is_fortran = not array.flags.c_contiguous
        save(is_fortran)
        save(array.tobytes(order="F" if is_fortran else "C"))
        write(b"tb")

    dispatch[np.ndarray] = save_array


def python2_pickle(value: Any) -> bytes:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue()


def planes(images: np.ndarray) -> np.ndarray:
    """(n, H, W, 3) -> (n, 3 H W): red, green, blue, each row by row."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def mat(images: np.ndarray, digits: np.ndarray) -> bytes:
    file = io.BytesIO()
    y = np.where(digits == 0, 10, digits).astype(np.uint8)[:, None]
    scipy.io.savemat(file, {"X": images.transpose(1, 2, 3, 0), "y": y}, do_compression=True)
    return file.getvalue()


class Tiny:
    """What the files say: images and labels of the parts of one set."""

    def __init__(self, n_classes: int, side: int, channels: int = 3) -> None:
        draws = np.random.default_rng(n_classes * side)
        self.n_classes = n_classes

        def part(n: int) -> tuple[np.ndarray, np.ndarray]:
            labels = np.concatenate([np.arange(n_classes), draws.integers(0, n_classes, n - n_classes)])
            return draws.integers(0, 256, (n, side, side, channels), dtype=np.uint8), labels

        self.train, self.test, self.extra = part(5 * n_classes), part(n_classes + 1), part(n_classes + 2)
        self.unlabeled = part(n_classes + 3)[0]
        self.coarse = [labels % 20 for _, labels in (self.train, self.test)]
        members = [np.flatnonzero(self.train[1] == label) for label in range(n_classes)]
        self.folds = [np.sort([draws.choice(rows) for rows in members]) for _ in range(10)]


def cifar10_binary(tiny: Tiny) -> Files:
    def records(images: np.ndarray, labels: np.ndarray) -> bytes:
        return np.column_stack([labels.astype(np.uint8), planes(images)]).tobytes()

    batches = {
        f"data_batch_{at + 1}.bin": records(*(part[10 * at : 10 * at + 10] for part in tiny.train)) for at in range(5)
    }
    return {**batches, "test_batch.bin": records(*tiny.test), "batches.meta.txt": b"airplane\n"}


def cifar10_python(tiny: Tiny) -> Files:
    def batch(images: np.ndarray, labels: np.ndarray) -> bytes:
        return python2_pickle(
            {
                b"batch_label": b"training batch",
                b"labels": labels.tolist(),
                b"data": planes(images),
                b"filenames": [b"a_%03d.png" % row for row in range(len(labels))],
            }
        )

    batches = {f"data_batch_{at + 1}": batch(*(part[10 * at : 10 * at + 10] for part in tiny.train)) for at in range(5)}
    return {**batches, "test_batch": batch(*tiny.test)}


def cifar100_binary(tiny: Tiny) -> Files:
    return {
        file: np.column_stack([coarse.astype(np.uint8), labels.astype(np.uint8), planes(images)]).tobytes()
        for file, (images, labels), coarse in zip(
            ("train.bin", "test.bin"), (tiny.train, tiny.test), tiny.coarse, strict=True
        )
    }


def cifar100_python(tiny: Tiny) -> Files:
    return {
        file: python2_pickle(
            {
                b"filenames": [b"x.png"] * len(labels),
                b"fine_labels": labels.tolist(),
                b"coarse_labels": coarse.tolist(),
                b"data": np.asfortranarray(planes(images)),
            }
        )
        for file, (images, labels), coarse in zip(("train", "test"), (tiny.train, tiny.test), tiny.coarse, strict=True)
    }


def svhn(tiny: Tiny) -> Files:
    return {f"{part}_32x32.mat": mat(*getattr(tiny, part)) for part in ("train", "test", "extra")}


def stl10(tiny: Tiny) -> Files:
    def columns_first(images: np.ndarray) -> bytes:
        return np.ascontiguousarray(images.transpose(0, 3, 2, 1)).tobytes()

    return {
        "train_X.bin": columns_first(tiny.train[0]),
        "train_y.bin": (tiny.train[1] + 1).astype(np.uint8).tobytes(),
        "test_X.bin": columns_first(tiny.test[0]),
        "test_y.bin": (tiny.test[1] + 1).astype(np.uint8).tobytes(),
        "unlabeled_X.bin": columns_first(tiny.unlabeled),
        "fold_indices.txt": "".join(" ".join(map(str, fold)) + " \n" for fold in tiny.folds).encode(),
        "class_names.txt": b"airplane\n",
    }


def mnist(tiny: Tiny) -> Files:
    return {
        f"{part}-{kind}": content
        for part, (images, labels) in {"train": tiny.train, "t10k": tiny.test}.items()
        for kind, content in {"images-idx3-ubyte": idx(images[..., 0]), "labels-idx1-ubyte": idx(labels)}.items()
    }


def mnist_gz(tiny: Tiny) -> Files:
    return {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in mnist(tiny).items()}


FORMS: dict[str, tuple[Callable[[Tiny], Files], str, Callable[[], Tiny]]] = {  # writer, folder, content
    "cifar10-binary": (cifar10_binary, "cifar-10-batches-bin", lambda: Tiny(10, 32)),
    "cifar10-python": (cifar10_python, "cifar-10-batches-py", lambda: Tiny(10, 32)),
    "cifar100-binary": (cifar100_binary, "cifar-100-binary", lambda: Tiny(100, 32)),
    "cifar100-python": (cifar100_python, "cifar-100-python", lambda: Tiny(100, 32)),
    "svhn": (svhn, "svhn", lambda: Tiny(10, 32)),
    "stl10": (stl10, "stl10_binary", lambda: Tiny(10, 96)),
    "mnist": (mnist, "mnist", lambda: Tiny(10, 28, channels=1)),
    "fashion-mnist": (mnist_gz, "fashion-mnist", lambda: Tiny(10, 28, channels=1)),
}


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder in which sets are looked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DPSSL_DATA", str(tmp_path / "sets"))
    (tmp_path / "sets").mkdir()
    return tmp_path / "sets"


@pytest.fixture
def write_set(data_folder: Path) -> Callable[..., Tiny]:
    """`write_set("cifar10-binary")` writes its files into their published folder; with `archive=` into that .tar.gz."""

    def write(form: str, archive: str = "") -> Tiny:
        writer, folder, content = FORMS[form]
        tiny = content()
        if archive:
            pack(data_folder / archive, {f"{folder}/{name}": file for name, file in writer(tiny).items()})
        else:
            (data_folder / folder).mkdir(parents=True)
            for name, file in writer(tiny).items():
                (data_folder / folder / name).write_bytes(file)
        return tiny

    return write


def pack(path: Path, files: Files) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@pytest.fixture
def pack_files() -> Callable[[Path, Files], None]:
    return pack


@pytest.fixture
def pickled() -> Callable[[Any], bytes]:
    return python2_pickle

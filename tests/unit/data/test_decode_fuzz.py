"""Files cut off or with bits flipped anywhere: an image, or an error that is ours; never another, never a hang."""

import io
import signal
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dpssl.data.collection import read_collection
from dpssl.data.decode import DamagedImage, decode_image, read_header
from dpssl.data.image_files import read_image
from dpssl.data.label_table import match_rows, read_label_table
from dpssl.data.readers import load_dataset
from dpssl.errors import InputError

SECONDS = 20  # for a whole group of files that takes one; a hang is what goes beyond
N_FLIPPED = 150
FILES = [
    ("JPEG", "RGB", {}), ("JPEG", "L", {"progressive": True}), ("JPEG", "CMYK", {}), ("PNG", "RGB", {}),
    ("PNG", "P", {}), ("PNG", "RGBA", {}), ("PNG", "I;16", {}), ("WEBP", "RGB", {}),
    ("WEBP", "RGBA", {"lossless": True}), ("BMP", "RGB", {}), ("BMP", "P", {}),
    ("TIFF", "RGB", {}), ("TIFF", "L", {"compression": "tiff_lzw"}),
    ("TIFF", "F", {}), ("TIFF", "RGB", {"compression": "jpeg"}), ("GIF", "P", {}),
]  # fmt: skip


@contextmanager
def no_hang() -> Iterator[None]:
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def hang(*_: object) -> None:
        pytest.fail(f"still busy after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def complaint(work: Callable[[], object]) -> str | None:
    """What `work` says is wrong; None where it gets through. Any error but ours passes on."""
    try:
        work()
        return None
    except (DamagedImage, InputError) as problem:
        return str(problem)


def damaged_versions(content: bytes, draws: np.random.Generator) -> Iterator[bytes]:
    for length in np.unique(np.r_[0:40, np.linspace(40, len(content) - 1, 40).astype(int)]):
        yield content[:length]
    for _ in range(N_FLIPPED):
        flipped = np.frombuffer(content, dtype=np.uint8).copy()
        # half of the flips in the first bytes, where headers, sizes and tables are
        reach = len(flipped) if draws.random() < 0.5 else min(200, len(flipped))
        where = draws.integers(0, reach, size=draws.integers(1, 9))
        flipped[where] ^= (1 << draws.integers(0, 8, size=len(where))).astype(np.uint8)
        yield flipped.tobytes()


def stored(picture: Image.Image, mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    if mode == "F":
        return Image.fromarray((np.asarray(picture.convert("L")) / 255).astype(np.float32))
    return picture.convert(mode)


@pytest.mark.parametrize(("format", "mode", "options"), FILES, ids=lambda value: str(value))
def test_damaged_image_files(
    format: str, mode: str, options: dict, picture: Image.Image, as_file: Callable[..., bytes]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    extra = {"exif": exif} if format in ("JPEG", "PNG", "WEBP") else {}
    content = as_file(stored(picture, mode), format, **options, **extra)
    assert decode_image(content, 16, 3)[0].shape == (16, 16, 3)
    complaints = []
    with no_hang():
        for damaged in damaged_versions(content, np.random.default_rng(0)):
            complaint(lambda: read_header(io.BytesIO(damaged)))  # noqa: B023
            complaints.append(complaint(lambda: decode_image(damaged, 16, 3)))  # noqa: B023
    assert len([text for text in complaints if text]) > 10
    assert "" not in complaints


def test_damaged_tables(tmp_path: Path) -> None:
    content = "path,label\n" + "".join(f'"a/{number}.jpg",class {number % 3}\n' for number in range(20))
    ids = [f"a/{number}.jpg" for number in range(20)]
    table = tmp_path / "labels.csv"
    with no_hang():
        for damaged in damaged_versions(content.encode(), np.random.default_rng(0)):
            table.write_bytes(damaged)
            found = complaint(lambda: match_rows(read_label_table(table), ids, table, tmp_path))
            assert found is None or "labels.csv" in found


def test_damaged_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = tmp_path / "labels.parquet"
    parquet.write_table(pyarrow.table({"path": ["a.jpg", "b.jpg"], "label": ["cat", "dog"]}), table)
    content = table.read_bytes()
    with no_hang():
        for damaged in damaged_versions(content, np.random.default_rng(0)):
            table.write_bytes(damaged)
            found = complaint(lambda: read_label_table(table))
            assert found is None or "labels.parquet" in found


def test_damaged_archives(tmp_path: Path, photos: Callable[..., Path]) -> None:
    root = photos("1.png", "2.png", "3.png")
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w") as archive:
        for number in (1, 2, 3):
            archive.add(root / f"{number}.png", f"{number}.png")
            (root / "label").write_text(str(number % 2))
            archive.add(root / "label", f"{number}.cls")
    content = path.read_bytes()[:5000]
    with no_hang():
        for damaged in damaged_versions(content, np.random.default_rng(0)):
            path.write_bytes(damaged)
            found = complaint(lambda: [read_image(path, file) for file in read_collection(path).images])
            assert found != ""


def test_damaged_npy(tmp_path: Path) -> None:
    path, table = tmp_path / "images.npy", tmp_path / "labels.csv"
    np.save(path, np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8))
    table.write_text("row,label\n0,a\n1,b\n")
    content = path.read_bytes()
    with no_hang():
        for damaged in damaged_versions(content, np.random.default_rng(0)):
            path.write_bytes(damaged)
            found = complaint(lambda: load_dataset(str(path), str(table)))
            assert found is None or any(name in found for name in ("images.npy", "labels.csv", "images:"))

"""What `dpssl data check` says of image files and arrays, and that it ends as a run would."""

import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dpssl.config import DataConfig
from dpssl.data.check import describe_collection
from dpssl.errors import InputError

Photos = Callable[..., Path]
NAMES = [f"{kind}/{number:02d}.png" for kind in ("cat", "dog", "unlabeled") for number in range(20)]
PIXELS = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)


def lines(root: Path, **settings: object) -> str:
    return "\n".join(describe_collection(DataConfig(data=str(root), **settings), seed=1))


def refused(root: Path, message: str, **settings: object) -> str:
    """What is said before the InputError that `message` matches."""
    said: list[str] = []
    with pytest.raises(InputError, match=message):
        said.extend(describe_collection(DataConfig(data=str(root), **settings), seed=1))
    return "\n".join(said)


def break_file(root: Path, *names: str) -> None:
    for name in names:
        (root / name).write_bytes(b"")


def test_the_check_describes_files_labels_and_the_run(photos: Photos, tmp_path: Path) -> None:
    root = photos(*NAMES, "test/cat/1.png")
    shutil.copy(root / "cat/00.png", root / "unlabeled/copy.png")
    shutil.copy(root / "cat/00.png", root / "test/cat/copy.png")
    Image.new("L", (40, 30)).save(root / "unlabeled" / "grey.jpg")
    break_file(root, "cat/03.png")
    report = lines(root)
    for expected in [
        "a folder a class",
        "files          64, 1 of them damaged (1.6%)",
        "sizes          12x12 (62), 40x30 (1)",
        "modes          RGB (62), L (1)",
        "formats        PNG (62), JPEG (1)",
        "exact copies   1 groups, such as cat/00.png = test/cat/copy.png = unlabeled/copy.png",
        "across test  1 groups",
        "and labelled 1 groups",
        "damaged        cat/03.png: is empty",
        "images         61 of 12x12, colour",
        "test images    2",
        "classes        2: cat, dog",
        "labels         39, 19 to 20 a class: cat 19, dog 20",
        "dpssl run would label 22 images of 12x12 in colour from 39 labels of 2 classes, test on 2, and start from",
    ]:
        assert expected in report


def test_the_check_ends_as_the_run_would(photos: Photos) -> None:
    root = photos(*NAMES)
    break_file(root, *NAMES[4:8])
    said: list[str] = []
    with pytest.raises(InputError, match="4 of 60 image files are damaged"):
        said.extend(describe_collection(DataConfig(data=str(root)), seed=1))
    assert sum("damaged        cat/" in line for line in said) == 4


def test_the_check_of_a_named_set() -> None:
    assert "1,797 of 8x8, grey" in lines(Path("digits"))


def test_files_without_labels_are_described_before_they_are_refused(photos: Photos) -> None:
    root = photos(*(name.replace("/", "-") for name in NAMES))
    shutil.copy(root / "cat-00.png", root / "copy.png")
    break_file(root, "dog-03.png")
    report = refused(root, "61 images, but no labels: give --labels FILE")
    for expected in [
        "images without labels",
        "files          61, 1 of them damaged (1.6%)",
        "sizes          12x12 (60)",
        "modes          RGB (60)",
        "exact copies   1 groups, such as cat-00.png = copy.png",
        "damaged        dog-03.png: is empty",
        "images         60 of 12x12, colour",
    ]:
        assert expected in report


def test_a_tar_without_labels_is_described(photos: Photos, tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "shard"), "tar", photos("1.png", "2.png"))
    assert "files          2, 0 of them damaged" in refused(tmp_path / "shard.tar", "2 images, but no label")


def test_arrays_without_labels_are_described_before_they_are_refused(tmp_path: Path) -> None:
    pixels = np.concatenate([PIXELS, PIXELS[7:8]])
    np.save(tmp_path / "own.npy", pixels)
    np.savez(tmp_path / "own.npz", images=pixels)
    for name in ("own.npy", "own.npz"):
        report = refused(tmp_path / name, "holds images without labels; give --labels FILE, by row number")
        assert "images         61 of 8x8, colour" in report
        assert "exact copies   1 groups, such as image-00007 = image-00060" in report


def test_copies_in_arrays_and_across_their_test_images(tmp_path: Path) -> None:
    labels = np.r_[np.arange(10) % 2, np.full(50, -1)]
    test = np.stack([PIXELS[3], PIXELS[20], 255 - PIXELS[0]])
    pixels = np.concatenate([PIXELS[:-1], PIXELS[30:31]])
    np.savez(tmp_path / "own.npz", images=pixels, labels=labels, test_x=test, test_y=np.array([1, 0, 0]))
    report = lines(tmp_path / "own.npz")
    assert "exact copies   3 groups, such as image-00003 = test-00000" in report
    assert "across test  2 groups, such as image-00003 = test-00000" in report
    assert "and labelled 1 groups, such as image-00003 = test-00000" in report
    np.savez(tmp_path / "own.npz", images=PIXELS, labels=labels)
    report = lines(tmp_path / "own.npz")
    assert "exact copies   none" in report
    assert "across test" not in report


def test_copies_that_a_drawn_test_set_parts(photos: Photos, tmp_path: Path) -> None:
    """30 images twice, a fifth of the copies held out: some pair lies on both sides."""
    pixels = np.concatenate([PIXELS[:30], PIXELS[:30]])
    np.savez(tmp_path / "set.npz", train_x=pixels, train_y=np.arange(60) % 2)
    root = photos(*NAMES[:40])
    for name in NAMES[:40]:
        shutil.copy(root / name, root / name.replace(".png", " again.png"))
    for path, n_copies, n_test in ((tmp_path / "set.npz", 30, 12), (root, 40, 16)):
        report = lines(path, n_labels=30)
        assert f"exact copies   {n_copies} groups" in report
        assert f"held out       {n_test} images to test on" in report
        assert "across test  none" not in report
        assert "and labelled none" not in report


def test_images_are_hashed_one_by_one(tmp_path: Path) -> None:
    """A mapped array of 64 MB is described without a copy of it."""
    mapped = np.lib.format.open_memmap(tmp_path / "own.npy", "w+", np.uint8, (1000, 256, 256))
    mapped[:, 0, :4] = np.arange(1000, dtype=np.uint32)[:, None].view(np.uint8)
    mapped.flush()
    del mapped
    tracemalloc.start()
    assert "exact copies   none" in refused(tmp_path / "own.npy", "without labels")
    assert tracemalloc.get_traced_memory()[1] < 4e6
    tracemalloc.stop()

"""Image files as a dataset, and what is said about them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpssl.config import DataConfig
from dpssl.data.copies import find_copies
from dpssl.data.readers import load_dataset
from dpssl.data.split import make_split
from dpssl.errors import InputError

Photos = Callable[..., Path]
NAMES = [f"{kind}/{number:02d}.png" for kind in ("cat", "dog", "unlabeled") for number in range(20)]


def read(root: Path, labels: str = "", **settings: object) -> object:
    return load_dataset(str(root), labels, DataConfig(**settings), n_workers=1)


def break_file(root: Path, *names: str) -> None:
    for name in names:
        (root / name).write_bytes(b"")


def test_images_ids_and_labels_belong_together(photos: Photos, tmp_path: Path) -> None:
    root = photos("b.png", "a/1.png", "a/2.png", "c.png")  # their first channel is 0, 1, 2, 3
    (tmp_path / "labels.csv").write_text("path,label\nc.png,zebra\na/1.png,ant\n")
    dataset = read(root, str(tmp_path / "labels.csv"))
    assert dataset.ids.tolist() == ["a/1.png", "a/2.png", "b.png", "c.png"]
    assert dataset.images[:, 0, 0, 0].tolist() == [1, 2, 0, 3]
    assert dataset.class_names == ("ant", "zebra")
    assert dataset.given_labels.tolist() == [0, -1, -1, 1]
    assert dataset.origin.decoding == {"image_size": 12, "channels": 3, "crop": "centre square", "background": 255}
    assert dataset.origin.statement == (
        f"{root}: images with the labels of labels.csv (labels are given); 4 files of 12x12, their centre square at "
        "12x12 in colour"
    )


def test_nothing_is_taken_away_for_testing_and_nothing_copied(photos: Photos) -> None:
    dataset, split = make_split(read(photos(*NAMES)), n_labels=40, seed=1)
    assert (len(split.labeled), len(split.unlabeled), len(split.test)) == (40, 20, 0)
    assert isinstance(dataset.images, np.memmap)


def test_test_images_are_apart(photos: Photos) -> None:
    dataset = read(photos(*NAMES, "test/dog/1.png", "test/cat/2.png"))
    assert dataset.test_ids.tolist() == ["test/cat/2.png", "test/dog/1.png"]
    assert dataset.test_truth.tolist() == [0, 1]
    assert dataset.test_images[:, 0, 0, 0].tolist() == [61, 60]


def test_a_benchmark_reveals_labels_and_holds_out_a_test_set(photos: Photos) -> None:
    dataset, split = make_split(read(photos(*NAMES[:40])), n_labels=8, seed=1)
    assert (len(split.labeled), len(dataset.test_images)) == (8, 8)


def test_damaged_files_are_left_out_of_everything(photos: Photos) -> None:
    root = photos(*NAMES, "test/dog/1.png", "test/cat/2.png")
    break_file(root, "cat/03.png", "unlabeled/07.png", "test/cat/2.png")
    dataset = read(root)
    assert len(dataset.images) == len(dataset.ids) == 58
    assert dataset.test_ids.tolist() == ["test/dog/1.png"]
    assert dict(zip(dataset.ids.tolist(), dataset.images[:, 0, 0, 0].tolist(), strict=True))["dog/00.png"] == 20
    assert dict(dataset.origin.damaged) == dict.fromkeys(
        ["cat/03.png", "unlabeled/07.png", "test/cat/2.png"], "is empty"
    )
    assert dataset.origin.notes == ("labelled images that are damaged and left out: 2",)


def test_too_many_damaged_files_stop_the_run_unless_told_otherwise(photos: Photos) -> None:
    root = photos(*NAMES)
    break_file(root, *NAMES[4:8])
    message = r"4 of 60 image files are damaged, more than --max-damaged 0\.05: cat/04\.png is empty; .*; …; repair"
    with pytest.raises(InputError, match=message):
        read(root)
    assert len(read(root, max_damaged=0.1).images) == 56
    break_file(root, *NAMES)
    with pytest.raises(InputError, match="60 of 60 image files are damaged"):
        read(root, max_damaged=0.99)
    with pytest.raises(InputError, match="there are no images"):
        read(root, max_damaged=1.0)


def test_a_class_whose_labelled_images_are_all_damaged(photos: Photos) -> None:
    root = photos("cat/1.png", *NAMES[20:])
    break_file(root, "cat/1.png")
    with pytest.raises(InputError, match="class 'cat' is a class without a labelled example"):
        make_split(read(root), n_labels=40, seed=1)


def test_copies_across_the_test_set_and_under_several_labels_are_noted(photos: Photos) -> None:
    root = photos(*NAMES)
    (root / "test" / "cat").mkdir(parents=True)
    shutil.copy(root / "cat/00.png", root / "test/cat/same.png")
    shutil.copy(root / "cat/01.png", root / "dog/same.png")
    leaked, contradiction = read(root).origin.notes
    assert "1 test images are outside the test set too, byte by byte (cat/00.png and test/cat/same.png)" in leaked
    assert contradiction == "the same image under several labels: cat/01.png ('cat') and dog/same.png ('dog')"


def test_no_note_tells_a_benchmarks_hidden_labels(photos: Photos) -> None:
    root = photos(*NAMES[:40])
    shutil.copy(root / "cat/01.png", root / "dog/same.png")
    assert read(root).origin.notes == ()


def test_many_contradictions_are_few_notes(photos: Photos) -> None:
    root = photos(*NAMES)
    for number in range(10):
        shutil.copy(root / f"cat/{number:02d}.png", root / f"dog/same {number}.png")
    assert read(root).origin.notes[3:] == ("… and 7 more images under several labels",)


def test_finding_copies() -> None:
    digests = np.array([[1] * 16, [2] * 16, [1] * 16, [3] * 16, [2] * 8 + [9] * 8, [1] * 16], dtype=np.uint8)
    assert find_copies(list("abcdef"), digests) == [["a", "c", "f"]]
    assert find_copies([], digests[:0]) == []

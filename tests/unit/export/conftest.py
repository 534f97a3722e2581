"""A run folder written by hand: hostile ids and class names, and pixels that tell which image they are."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpssl.export.images import RunImages
from dpssl.export.labels import LabelRows, read_labels
from dpssl.run_folder import RunFolder

CLASS_NAMES = ("cat", "=cmd()|' /C calc'!A1", "../../etc", "Cat", 'a "b" & <c>\x01', "null\x00byte")
IDS = (
    "../../escape", "/absolute/path.png", "a/b.png", "a_b.png", "A_B.PNG", "=1+1", "line\nbreak", "x\x00y", "NUL.txt",
    "é" * 300 + ".png", "é" * 300 + "1.png", "e\u0301.png", "é.png", "..", ".hidden", "trailing. ", "a\\b.png",
    "half\ud800",
)  # fmt: skip
UNCOVERED, GIVEN = 3, 5  # rows


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    n, n_classes = len(IDS), len(CLASS_NAMES)
    soft_labels = np.full((n, n_classes), 0.1 / (n_classes - 1))
    soft_labels[np.arange(n), np.arange(n) % n_classes] = 0.9
    soft_labels[0] = [0.5, 0.3, 0.05, 0.05, 0.05, 0.05]
    folder.write_arrays(  # by hand: no half of a character gets into a run folder otherwise
        "soft_labels.npz",
        soft_labels=soft_labels.astype(np.float32),
        covered=np.arange(n) != UNCOVERED,
        ids=np.array(IDS),
        class_names=np.array(CLASS_NAMES),
    )
    folder.write_json("split.json", {"labeled": {IDS[GIVEN]: 2}, "unlabeled": [], "test": []})
    folder.write_json("images.json", {"data": "digits", "shape": [8, 8, 1]})
    return folder


@pytest.fixture
def rows(folder: RunFolder) -> LabelRows:
    return read_labels(folder)


@pytest.fixture
def images() -> RunImages:
    """Pixels alone; each image is its row number in grey."""
    pixels = np.arange(len(IDS), dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2)
    return RunImages(None, lambda: (np.array(IDS), pixels))


@pytest.fixture
def image_files(tmp_path: Path) -> Callable[[], tuple[LabelRows, RunImages]]:
    """A run made from a folder: ids are paths below it."""

    def make() -> tuple[LabelRows, RunImages]:
        from PIL import Image

        root, ids = tmp_path / "my photos", ("one.png", "sub/two.png", "sub#2/thrée.png")
        for number, id in enumerate(ids):
            (root / id).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), number).save(root / id)
        folder = RunFolder(tmp_path / "file-run")
        soft_labels = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
        folder.write_soft_labels(ids, ("cat", "dog"), soft_labels, np.array([True, True, False]))
        folder.write_json("images.json", {"data": str(root), "shape": [8, 8, 1], "decoding": {"image_size": 8}})
        return read_labels(folder), RunImages.of(folder, lambda: pytest.fail("the files are there"))

    return make

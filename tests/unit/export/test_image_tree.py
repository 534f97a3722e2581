"""Class folders, and the Hugging Face image folder as datasets' own builder reads it, offline."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dpssl.errors import RunFolderError
from dpssl.export.image_tree import write_class_folders, write_huggingface
from dpssl.export.images import RunImages
from dpssl.export.labels import LabelRows

MakeRun = Callable[[], tuple[LabelRows, RunImages]]


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_hostile_names_stay_inside_and_apart(rows: LabelRows, images: RunImages, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    out.mkdir(parents=True)
    before = {path for path in tmp_path.rglob("*") if out not in path.parents}
    assert write_class_folders(rows, images, out, "link") == len(rows) - 1, "one has no label"
    assert {path for path in tmp_path.rglob("*") if out not in path.parents} == before, "written outside"
    assert len([path for path in out.iterdir() if path.is_dir()]) == len(rows.class_names)
    entries = table_of(out / "index.csv")
    assert len({entry["file_name"].casefold() for entry in entries}) == len(rows) - 1
    for entry, row in zip(entries, np.flatnonzero(rows.labels >= 0), strict=True):
        path = out / entry["file_name"].removeprefix("'")
        assert np.asarray(Image.open(path))[0, 0] == row, "another image under this name"
    with_class = {entry["file_name"].removeprefix("'").split("/")[0]: entry["label"] for entry in entries}
    assert len(with_class) == len(set(with_class.values())), "a folder a class"


@pytest.mark.parametrize("mode", ["link", "copy"])
def test_files_are_linked_or_copied(image_files: MakeRun, tmp_path: Path, mode: str) -> None:
    rows, images = image_files()
    out = tmp_path / "out"
    out.mkdir()
    assert write_class_folders(rows, images, out, mode) == 2
    found = {path.relative_to(out).as_posix() for path in out.rglob("*.png")}
    assert found == {"cat/one.png", "dog/sub_two.png"}
    path, original = out / "dog" / "sub_two.png", tmp_path / "my photos" / "sub" / "two.png"
    assert path.is_symlink() == (mode == "link")
    assert path.read_bytes() == original.read_bytes()
    if mode == "copy":
        path.write_bytes(b"")
        assert original.stat().st_size > 0


@pytest.mark.parametrize("id", ["../run/soft_labels.npz", "/etc/hostname", "a/../../x", "", "x\0y", "..\\x"])
def test_an_id_that_leads_out_of_the_images_is_refused(image_files: MakeRun, id: str) -> None:
    _, images = image_files()
    with pytest.raises(RunFolderError, match="is no path inside"):
        images.file_of(id)


def test_a_file_that_is_gone_is_named(image_files: MakeRun, tmp_path: Path) -> None:
    rows, images = image_files()
    (tmp_path / "my photos" / "one.png").unlink()
    (tmp_path / "out").mkdir()
    with pytest.raises(RunFolderError, match=r"one\.png: no such file"):
        write_huggingface(rows, images, tmp_path / "out", "copy")


def test_datasets_reads_the_image_folder(
    rows: LabelRows, images: RunImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    out = tmp_path / "out"
    out.mkdir()
    assert write_huggingface(rows, images, out, "link") == len(rows)
    loaded = datasets.load_dataset("imagefolder", data_dir=str(out), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(loaded) == len(rows)
    shades = [np.asarray(image)[0, 0] for image in loaded["image"]]
    assert sorted(shades) == list(range(len(rows)))
    for shade, label, confidence in zip(shades, loaded["label"], loaded["confidence"], strict=True):
        written = None if label is None else label.removeprefix("'")
        assert written == rows.label_of(shade)
        assert confidence == pytest.approx(float(rows.confidence[shade]), abs=1e-6)


def test_datasets_follows_the_links(image_files: MakeRun, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows, images = image_files()
    out = tmp_path / "out"
    out.mkdir()
    write_huggingface(rows, images, out, "link")
    loaded = datasets.load_dataset("imagefolder", data_dir=str(out), split="train", cache_dir=str(tmp_path / "cache"))
    assert [np.asarray(image)[0, 0] for image in loaded["image"]] == [0, 1, 2]
    assert loaded["label"][:] == ["cat", "dog", None]
    assert loaded["id"][:] == ["one.png", "sub/two.png", "sub#2/thrée.png"]

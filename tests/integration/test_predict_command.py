"""`dpssl predict` on a run made from image files: what the run's own end model says, from any source of images."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from dpssl.run_folder import RunFolder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 30 colour images of two classes, 20 pixels wide and 16 high, with six labels beside it."""
    root = tmp_path_factory.mktemp("photos")
    draws = np.random.default_rng(0)
    (root / "photos" / "sub").mkdir(parents=True)
    lines = ["path,label"]
    for number in range(30):
        pixels = draws.integers(0, 120, (16, 20, 3), np.uint8)
        pixels[..., number % 2] += 120
        name = f"sub/{number:02d}.jpg" if number % 3 else f"{number:02d}.png"
        Image.fromarray(pixels).save(root / "photos" / name)
        if number < 6:
            lines.append(f"{name},{('red', '=green')[number % 2]}")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root / "photos"


@pytest.fixture(scope="module")
def run(warm_cli: Any, tiny: list[str], photos: Path) -> Path:
    out = photos.parent / "run"
    flags = ["--data", photos, "--labels", photos.parent / "labels.csv", "--depth", "7", "--strides", "1", "2"]
    done = warm_cli("run", *tiny, *flags, "--width", "1", "--end-uncovered", "prior", "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def predicted(text: str) -> dict[str, list[float]]:
    rows = list(csv.DictReader(io.StringIO(text)))
    return {row["id"]: [float(row["p_=green"]), float(row["p_red"])] for row in rows}


@pytest.fixture(scope="module")
def expected(run: Path) -> dict[str, np.ndarray]:
    """The end model's probabilities of the run's own images, from the features it stored."""
    from dpssl.export.cleanlab_arrays import end_model_probabilities

    folder = RunFolder(run)
    ids = folder.read_soft_labels().ids
    found = end_model_probabilities(folder, ids)
    assert found is not None
    return dict(zip(ids.tolist(), found, strict=True))


def test_images_are_decoded_as_in_training(
    warm_cli: Any, run: Path, photos: Path, expected: dict[str, np.ndarray]
) -> None:
    done = warm_cli("predict", run, photos)
    assert done.returncode == 0, done.stderr
    found = predicted(done.stdout)
    assert len(found) == 30
    for id, probabilities in expected.items():
        np.testing.assert_allclose(found[id], probabilities, atol=2e-3)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert list(rows[0]) == ["id", "label", "confidence", "p_=green", "p_red"]
    assert {row["label"] for row in rows} <= {"red", "'=green"}


def test_one_image_a_tar_and_arrays_give_the_same(warm_cli: Any, run: Path, photos: Path, tmp_path: Path) -> None:
    whole = predicted(warm_cli("predict", run, photos).stdout)
    one = warm_cli("predict", run, photos / "sub" / "01.jpg")
    assert predicted(one.stdout) == {"01.jpg": whole["sub/01.jpg"]}
    with tarfile.open(tmp_path / "some.tar", "w") as archive:
        archive.add(photos / "00.png", "00.png")
        archive.add(photos / "sub" / "01.jpg", "deep/01.jpg")
    done = warm_cli("predict", run, tmp_path / "some.tar")
    assert predicted(done.stdout) == {"00.png": whole["00.png"], "deep/01.jpg": whole["sub/01.jpg"]}

    from dpssl.data.decode import decode_image

    side = json.loads((run / "images.json").read_text())["shape"][0]
    pixels = decode_image((photos / "00.png").read_bytes(), side, 3)[0][None]
    np.save(tmp_path / "plain.npy", pixels)
    np.savez(tmp_path / "named.npz", images=pixels / 255, ids=np.array(["mine"]))
    plain, named = (predicted(warm_cli("predict", run, tmp_path / name).stdout) for name in ("plain.npy", "named.npz"))
    assert plain == {"image-00000": whole["00.png"]}
    assert named == {"mine": whole["00.png"]}


def test_formats_and_places(warm_cli: Any, run: Path, photos: Path, tmp_path: Path) -> None:
    for name in ("labels.csv", "labels.json", "labels.parquet"):
        done = warm_cli("predict", run, photos, "--out", tmp_path / name)
        assert done.stdout == f"30 images labelled: {tmp_path / name}\n"
    table = pd.read_parquet(tmp_path / "labels.parquet")
    assert list(table.columns) == ["id", "label", "confidence", "p_=green", "p_red"]
    records = json.loads((tmp_path / "labels.json").read_text())
    assert [record["id"] for record in records] == table.id.tolist()
    assert records[0]["probabilities"].keys() == {"red", "=green"}
    refused = warm_cli("predict", run, photos, "--out", tmp_path / "labels.csv")
    assert refused.returncode == 2
    assert "never overwritten" in refused.stderr
    assert warm_cli("predict", run, photos, "--out", tmp_path / "labels.csv", "--redo").returncode == 0


def test_a_large_folder_goes_chunk_by_chunk(
    run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dpssl import new_images

    whole, _ = new_images.label_new_images(RunFolder(run), photos, torch.device("cpu"))
    monkeypatch.setattr(new_images, "CHUNK", 7)
    parts, _ = new_images.label_new_images(RunFolder(run), photos, torch.device("cpu"))
    assert parts.ids.tolist() == whole.ids.tolist()
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, atol=1e-6)
    assert "Labelling: 30/30" in capsys.readouterr().err


def test_grey_images_for_a_colour_model_and_damaged_files(warm_cli: Any, run: Path, tmp_path: Path) -> None:
    Image.new("L", (40, 30), 200).save(tmp_path / "grey.png")
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "empty.png").write_bytes(b"")
    done = warm_cli("predict", run, tmp_path)
    assert done.returncode == 0
    assert predicted(done.stdout).keys() == {"grey.png"}
    assert "note: 'cut.jpg' has no label: it " in done.stderr
    assert "note: 'empty.png' has no label: it is empty" in done.stderr


def test_links_that_lead_out_are_followed_where_asked(warm_cli: Any, run: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "linked.png").symlink_to(photos / "00.png")
    refused = warm_cli("predict", run, tmp_path / "new")
    assert refused.returncode == 2
    assert "give --follow-links true" in refused.stderr
    done = warm_cli("predict", run, tmp_path / "new", "--follow-links", "true")
    assert list(predicted(done.stdout)) == ["linked.png"]


def test_a_reader_that_ends_early_is_no_error(run: Path, photos: Path) -> None:
    """`dpssl predict RUN PATH | head -1`, whose pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "dpssl", "predict", str(run), str(photos)]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert ended.returncode == 128 + 13
    assert ended.stderr == ""


def test_no_training_data_is_needed(warm_cli: Any, run: Path, photos: Path, tmp_path: Path) -> None:
    for name in ("images.json", "end_model.safetensors"):
        (tmp_path / "sent").mkdir(exist_ok=True)
        shutil.copy(run / name, tmp_path / "sent" / name)
    assert (
        warm_cli("predict", tmp_path / "sent", photos / "00.png").stdout
        == warm_cli("predict", run, photos / "00.png").stdout
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "nosuch.png", "no such file or folder"),
        (lambda folder: folder, "holds no image that can be read"),
        (lambda folder: write(folder / "bad.png", b"no image"), "holds no image that can be read: bad.png is no image"),
        (lambda folder: write(folder / "bad.npz", b"PK"), "cannot be read as arrays"),
        (lambda folder: saved(folder / "x.npz", other=np.zeros(3)), "has the arrays ['other']; expected `images`"),
        (lambda folder: saved(folder / "x.npz", images=np.zeros((2, 5, 5, 3), np.uint8)), "(5, 5, 3), but the run was"),
        (lambda folder: saved(folder / "x.npz", images=np.zeros((2, 5), np.uint8)), "images have shape (2, 5)"),
    ],
)
def test_what_holds_no_images_is_refused(warm_cli: Any, run: Path, tmp_path: Path, make: Any, message: str) -> None:
    failed = warm_cli("predict", run, make(tmp_path))
    assert failed.returncode == 2, failed.stderr
    assert failed.stderr.startswith("dpssl predict: ")
    assert message in failed.stderr
    assert failed.stdout == ""


def test_an_unknown_ending_and_a_run_without_a_model_are_refused(
    warm_cli: Any, run: Path, photos: Path, tmp_path: Path
) -> None:
    failed = warm_cli("predict", run, photos, "--out", tmp_path / "labels.xlsx")
    assert "the ending says the format" in failed.stderr
    shutil.copy(run / "images.json", tmp_path / "images.json")
    failed = warm_cli("predict", tmp_path, photos)
    assert failed.returncode == 2
    assert "make it with `dpssl train` first" in failed.stderr


def test_exports_of_image_files(warm_cli: Any, run: Path, photos: Path, tmp_path: Path) -> None:
    """Links to the files of the run, copies on request, and addresses for Label Studio."""
    done = warm_cli("export", run, "--to", "huggingface", "--out", tmp_path / "linked")
    assert done.returncode == 0, done.stderr
    links = list((tmp_path / "linked" / "images").iterdir())
    n_labelled = len(RunFolder(run).read_soft_labels().ids)
    assert len(links) == n_labelled > 0
    assert all(path.is_symlink() for path in links)
    assert {path.resolve() for path in links} <= {path.resolve() for path in photos.rglob("*.*")}
    assert warm_cli("export", run, "--to", "huggingface", "--copy", "--out", tmp_path / "copied").returncode == 0
    copies = list((tmp_path / "copied" / "images").iterdir())
    assert len(copies) == n_labelled
    assert not any(path.is_symlink() for path in copies)
    assert warm_cli("export", run, "--to", "label-studio", "--out", tmp_path / "tasks").returncode == 0
    tasks = json.loads((tmp_path / "tasks" / "tasks.json").read_text())
    assert len(tasks) == n_labelled
    assert {task["data"]["image"] for task in tasks} == {
        f"/data/local-files/?d=photos/{t['data']['id']}" for t in tasks
    }


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def saved(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path

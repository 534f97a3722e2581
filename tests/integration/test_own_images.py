"""A folder of photos and a table of labels, from the command line: one run, the next one, a stop, and bad input."""

import csv
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from dpssl.run_folder import RunFolder

N_IMAGES, N_LABELED = 60, 6


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """60 of the digits 0, 1 and 2 as image files of several kinds; labels.csv beside the folder names six."""
    root = tmp_path / "photos"
    images, truth = load_digits(n_class=3, return_X_y=True)
    rows = []
    for number in range(N_IMAGES):
        picture = Image.fromarray((images[number].reshape(8, 8) * 15).astype(np.uint8)).resize((20, 16 + number % 5))
        path = root / f"{number % 4}" / f"photo {number:02d}.{('jpg', 'png', 'webp', 'bmp')[number % 4]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.convert("RGB").save(path)
        if number < N_LABELED:
            rows.append(f"{path.relative_to(root).as_posix()},digit {truth[number]}")
    (tmp_path / "labels.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    return root


@pytest.fixture
def run_photos(warm_cli: Any, tiny: list[str], photos: Path, tmp_path: Path) -> Callable[..., Any]:
    """`run_photos("--out", "run")`: a tiny run on the photos, in the folder that holds them."""

    def run(*flags: object, **options: Any) -> Any:
        return warm_cli(
            "run",
            "--data",
            "photos",
            "--labels",
            "labels.csv",
            "--preset",
            "digits",
            *tiny,
            *flags,
            cwd=tmp_path,
            **options,
        )

    return run


def test_a_folder_and_a_table_are_one_command(run_photos: Any, warm_cli: Any, photos: Path, tmp_path: Path) -> None:
    (photos / "broken.jpg").write_bytes(b"")
    done = run_photos("--out", "run")
    assert done.returncode == 0, done.stderr
    assert (
        "photos: images with the labels of labels.csv (labels are given); 60 files of 5 sizes, their centre square at "
        "16x16 in colour\n"
    ) in done.stderr
    assert "Decoding" in done.stderr
    assert "note: 1 damaged image files are left out: see damaged.csv" in done.stderr
    run = tmp_path / "run"
    with (run / "soft_labels.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == N_IMAGES
    assert all((photos / row["id"]).is_file() for row in rows)
    assert {row["label"] for row in rows} <= {"digit 0", "digit 1", "digit 2", ""}
    assert (run / "damaged.csv").read_text() == "file,reason\nbroken.jpg,is empty\n"
    images = json.loads((run / "images.json").read_text())
    assert images["data"] == str(photos)
    assert images["decoding"]["image_size"] == 16
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["n_labeled"], summary["n_test"]) == (N_LABELED, 0)

    (tmp_path / "elsewhere").mkdir()
    (run / "end_model.safetensors").unlink()
    resumed = warm_cli("resume", run, cwd=tmp_path / "elsewhere")
    assert resumed.returncode == 0, resumed.stderr
    assert "Decoding" not in resumed.stderr


def test_a_number_of_labels_has_no_effect_on_given_ones_and_that_is_said(run_photos: Any, tmp_path: Path) -> None:
    done = run_photos("--n-labels", 3, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert f"note: the {N_LABELED} labels you gave are used" in done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["n_labeled"] == N_LABELED


def test_a_kill_while_decoding_costs_what_was_not_written(
    run_photos: Any, warm_cli: Any, photos: Path, tmp_path: Path
) -> None:
    """The file of pixels is made, then opened for each block of 256: the second is never written."""
    for number in range(300):
        Image.new("RGB", (16, 16), (number % 256, 9, 9)).save(photos / f"more {number:03d}.png")
    killed = run_photos("--out", "run", die_at=("open", "decoding.bin", 3))
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "run").exists()
    done = run_photos("--out", "run")
    assert done.returncode == 0, done.stderr
    assert "Decoding: 360/360" in done.stderr
    assert "Decoding: 256/360" not in done.stderr


def test_a_full_disk_while_decoding(warm_cli: Any, photos: Path, tmp_path: Path) -> None:
    check = ("data", "check", "photos", "--labels", "labels.csv", "--image-size", 64)
    failed = warm_cli(*check, cwd=tmp_path, largest_file=50_000)
    assert failed.returncode == 2
    assert "cannot be written (File too large); free some space, or set DPSSL_CACHE" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert warm_cli(*check, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda root: (root.parent / "labels.csv").write_text("path,label\nnowhere.jpg,a\n"),
            "line 2: 'nowhere.jpg' is no image",
        ),
        (
            lambda root: (root.parent / "labels.csv").write_text("path,label\n../labels.csv,a\n"),
            "'../labels.csv' leaves",
        ),
        (lambda root: (root.parent / "labels.csv").unlink(), "labels.csv: no such file"),
        (
            lambda root: [path.write_bytes(b"") for path in sorted(root.rglob("*.*"))[:4]],
            "4 of 60 image files are damaged",
        ),
        (lambda root: (shutil.rmtree(root), root.mkdir()), "photos: there are no images in it"),
        (lambda root: shutil.rmtree(root), "--data photos: no such file, folder or data set"),
    ],
)
def test_bad_input_is_one_message_and_no_run_folder(
    change: Callable[[Path], object], message: str, run_photos: Any, photos: Path, tmp_path: Path
) -> None:
    change(photos)
    failed = run_photos("--out", "run")
    assert failed.returncode == 2
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr
    assert failed.stdout == ""
    assert not (tmp_path / "run").exists()


def test_other_classes_than_the_run_was_started_with(run_photos: Any, warm_cli: Any, tmp_path: Path) -> None:
    assert run_photos("--out", "run").returncode == 0
    text = (tmp_path / "labels.csv").read_text()
    (tmp_path / "labels.csv").write_text(text.replace("digit 2", "digit two"))
    failed = warm_cli("resume", tmp_path / "run")
    assert failed.returncode == 2
    assert "class_names" in failed.stderr


def test_data_check(warm_cli: Any, photos: Path, tmp_path: Path) -> None:
    done = warm_cli("data", "check", "photos", "--labels", "labels.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "files          60, 0 of them damaged (0.0%)" in done.stdout
    assert "dpssl run would label 54 images of 16x16 in colour from 6 labels of 3 classes" in done.stdout
    unlabeled = warm_cli("data", "check", "photos/0", cwd=tmp_path)
    assert unlabeled.returncode == 2
    assert "files          15, 0 of them damaged (0.0%)" in unlabeled.stdout
    assert "--data photos/0: 15 images, but no labels: give --labels FILE" in unlabeled.stderr
    failed = warm_cli("data", "check", "photos", "--labels", "nowhere.csv", cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr == "dpssl data: --labels nowhere.csv: no such file\n"


def test_a_run_outlives_its_table_of_labels(run_photos: Any, warm_cli: Any, tmp_path: Path) -> None:
    assert run_photos("--out", "run").returncode == 0
    (tmp_path / "labels.csv").unlink()
    before = (tmp_path / "run" / "soft_labels.csv").read_bytes()
    for words in (("evaluate",), ("label", "--redo")):
        done = warm_cli(words[0], tmp_path / "run", *words[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "soft_labels.csv").read_bytes() == before
    (tmp_path / "run" / "given_labels.csv").unlink()
    gone = warm_cli("evaluate", tmp_path / "run", cwd=tmp_path)
    assert gone.returncode == 2
    assert "labels.csv: no such file" in gone.stderr


def test_images_that_were_added_are_passed_over(
    run_photos: Any, warm_cli: Any, photos: Path, tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    """Of another size and in another folder, with rows of their own in the table, one of another class."""
    (photos / "broken.jpg").write_bytes(b"")
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert run_photos("--out", "whole").returncode == 0
    shutil.copytree(whole, run)
    (run / "soft_labels.npz").unlink()
    (run / "end_model.safetensors").unlink()
    for number in range(40):
        path = photos / "new" / f"photo {number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (90, 90), (9, number, 9)).save(path)
    (photos / "also broken.jpg").write_bytes(b"")
    with (tmp_path / "labels.csv").open("a") as table:
        table.write("new/photo 01.png,digit 0\nnew/photo 02.png,no digit\n")
    resumed = warm_cli("resume", run)
    assert resumed.returncode == 0, resumed.stderr
    note = (
        f"note: image files in {photos} that this run was not started with are passed over: 41; `dpssl predict {run} "
    )
    assert resumed.stderr.count(note) == 1
    assert "Decoding" not in resumed.stderr, "its images are still in the cache"
    assert differing(fingerprint(run), fingerprint(whole)) == []

    ids = RunFolder(run).read_soft_labels().ids.tolist()
    (run / "corrections.csv").write_text(
        f"id,old,new,who,when\n{ids[9]},digit 0,digit 1,Ada,2025-01-01T00:00:00+00:00\n"
    )
    refined = warm_cli("refine", run, "--out", tmp_path / "refined")
    assert refined.returncode == 0, refined.stderr
    assert note in refined.stderr
    assert (tmp_path / "refined" / "damaged.csv").read_bytes() == (run / "damaged.csv").read_bytes()
    for command in ("evaluate", "report"):
        done = warm_cli(command, tmp_path / "refined")
        assert done.returncode == 0, done.stderr
        assert "passed over: 41" in done.stderr


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda photo: photo.unlink(), "n_images"),
        (lambda photo: photo.rename(photo.with_name("renamed.jpg")), "n_images"),
        (lambda photo: Image.new("RGB", (20, 16), (9, 9, 9)).save(photo), "sha256"),
    ],
)
def test_images_that_were_added_hide_no_change(
    run_photos: Any, warm_cli: Any, photos: Path, tmp_path: Path, change: Callable[[Path], object], name: str
) -> None:
    assert run_photos("--out", "run").returncode == 0
    shutil.copy(photos / "0" / "photo 08.jpg", photos / "0" / "new.jpg")
    change(photos / "0" / "photo 08.jpg")
    failed = warm_cli("evaluate", tmp_path / "run")
    assert failed.returncode == 2
    assert f"the run was made from images of {name} " in failed.stderr


def test_images_that_have_moved_are_asked_for_by_their_place(
    run_photos: Any, warm_cli: Any, photos: Path, tmp_path: Path
) -> None:
    assert run_photos("--out", "run").returncode == 0
    (tmp_path / "elsewhere").mkdir()
    photos.rename(tmp_path / "elsewhere" / "photos")
    lost = warm_cli("evaluate", tmp_path / "run", cwd=tmp_path)
    assert lost.returncode == 2
    assert f"the images of this run were in {photos.resolve()}, where there is nothing now" in lost.stderr
    found = warm_cli("evaluate", tmp_path / "run", cwd=tmp_path / "elsewhere")
    assert found.returncode == 0, found.stderr

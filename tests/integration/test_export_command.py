"""`dpssl export` on a real run: every format, where it goes, and what is refused."""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RESULTS = {
    "csv": "labels.csv", "parquet": "labels.parquet", "label-studio": "label-studio", "cleanlab": "cleanlab.npz",
    "huggingface": "huggingface", "image-folder": "image-folder",
}  # fmt: skip


@pytest.fixture(scope="module")
def small_run(warm_cli: Any, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on 40 own images, two classes of which have names that are trouble."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("small")
    pixels, truth = load_digits(n_class=3, return_X_y=True)
    np.savez(
        folder / "own.npz",
        images=(pixels[:40].reshape(-1, 8, 8) * 15).astype(np.uint8),
        labels=np.where(np.arange(40) < 6, truth[:40], -1),
        class_names=np.array(["zero", "../one", "=two"]),
        ids=np.array([f"../{row}" if row % 2 else f"day {row}/x" for row in range(40)]),
    )
    done = warm_cli("run", "--preset", "digits", *tiny, "--data", folder / "own.npz", "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture
def run(small_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_run, tmp_path / "run"))


@pytest.mark.parametrize("kind", RESULTS)
def test_each_format_goes_into_the_run_and_nowhere_else(warm_cli: Any, run: Path, tmp_path: Path, kind: str) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = warm_cli("export", run, "--to", kind)
    assert done.returncode == 0, done.stderr
    place = run / "export" / RESULTS[kind]
    assert done.stdout.startswith(f"{kind}: ")
    assert done.stdout.rstrip().endswith(str(place))
    new = {path for path in tmp_path.rglob("*") if path.is_file()} - before.keys()
    assert new
    assert all(path == place or place in path.parents for path in new)
    assert all(path.read_bytes() == content for path, content in before.items())

    again = warm_cli("export", run, "--to", kind)
    assert again.returncode == 2
    assert f"{place}: exists, and an export is never overwritten" in again.stderr
    assert warm_cli("export", run, "--to", kind, "--redo").returncode == 0
    assert {path for path in tmp_path.rglob("*") if path.is_file()} - before.keys() == new


def test_labels_and_min_confidence(warm_cli: Any, run: Path, tmp_path: Path) -> None:
    assert warm_cli("export", run, "--to", "csv", "--out", tmp_path / "all.csv").returncode == 0
    done = warm_cli("export", run, "--to", "csv", "--out", tmp_path / "sure.csv", "--min-confidence", 1)
    assert done.stdout == f"csv: 6 images, 34 left out: {tmp_path / 'sure.csv'}\n", "those with a given label"
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    given = json.loads((run / "split.json").read_text())["labeled"]
    names = ["zero", "../one", "'=two"]
    assert {row["id"]: row["label"] for row in rows if row["source"] == "given"} == {
        id: names[label] for id, label in given.items()
    }
    assert len(rows) == 40


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("onnx", "end_model.onnx"), ("torch", "end_model.pt2")])
def test_the_end_model(warm_cli: Any, run: Path, kind: str, name: str) -> None:
    done = warm_cli("export", run, "--to", kind)
    assert done.returncode == 0, done.stderr
    assert (run / "export" / name).stat().st_size > 10_000
    assert "Warning" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--to", "csv", "--copy"], "--copy: only with --to huggingface or image-folder, not csv"),
        (["--to", "image-folder", "--link"], "--link: .* was made from arrays or an archive"),
        (["--to", "parquet", "--image-url", "http://x/"], "--image-url http://x/: only with --to label-studio"),
        (["--to", "onnx", "--min-confidence", "0.5"], "--min-confidence 0.5: only for labels"),
        (["--to", "csv", "--min-confidence", "2"], "--min-confidence 2.0: must be a probability"),
        (["--to", "csv", "--out", "."], "exists, and an export is never overwritten"),
        (["--to", "image-folder", "--out", ".", "--redo"], "is no export of dpssl"),
    ],
)
def test_flags_that_do_not_fit_are_refused(warm_cli: Any, run: Path, flags: list[str], message: str) -> None:
    failed = warm_cli("export", run, *flags, cwd=run)
    assert failed.returncode == 2, failed.stderr
    assert failed.stderr.startswith("dpssl export: ")
    assert re.search(message, failed.stderr)
    assert not (run / "export").exists()


def test_a_run_without_labels_or_end_model_says_what_makes_them(warm_cli: Any, run: Path) -> None:
    (run / "soft_labels.npz").unlink()
    (run / "end_model.safetensors").unlink()
    for kind, maker in (("csv", "dpssl label"), ("torch", "dpssl train")):
        failed = warm_cli("export", run, "--to", kind)
        assert failed.returncode == 2
        assert f"make it with `{maker}` first" in failed.stderr

"""Splits and class shares through the command line: what a run is told, it does, saves and shows."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dpssl.label_model import LabelModel


@pytest.fixture(scope="module")
def unbalanced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits 0, 1 and 2: 120, 30 and 10 of them, and a test set."""
    pixels, truth = load_digits(n_class=3, return_X_y=True)
    rows = np.concatenate([np.flatnonzero(truth == label)[:n] for label, n in enumerate((120, 30, 10))])
    images = (pixels.reshape(-1, 8, 8) * 15).astype(np.uint8)
    rest = np.setdiff1d(np.arange(len(truth)), rows)[:50]
    path = tmp_path_factory.mktemp("unbalanced") / "digits.npz"
    np.savez(path, train_x=images[rows], train_y=truth[rows], test_x=images[rest], test_y=truth[rest])
    return path


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("120,30,10", [0.75, 0.1875, 0.0625]), ("uniform", [1 / 3] * 3), ("labels", [0.5, 0.25, 0.25]), ("", None)],
)
def test_the_label_model_keeps_the_shares_it_is_given(
    setting: str, expected: list[float] | None, unbalanced: Path, warm_cli: Any, tiny: list[str], tmp_path: Path
) -> None:
    prior = ["--class-prior", setting, "--alignment", "true"] if setting else []
    run = tmp_path / "run"
    done = warm_cli("run", "--preset", "digits", *tiny, "--data", unbalanced, "--n-labels", 4, *prior, "--out", run)
    assert done.returncode == 0, done.stderr
    assert "4 of them labelled, 1 (1) to 2 (0) a class" in done.stderr
    balance = LabelModel.load(run / "label_model.safetensors").class_balance_
    assert balance.sum() == pytest.approx(1)
    if expected is not None:
        assert np.allclose(balance, expected)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--class-prior", "equal"], "--class-prior 'equal': choose estimated"),
        (["--class-prior", "0.5,0.5", "--n-labels", "6"], "has 2 numbers for 3 classes"),
        (["--fold", "1"], "--fold 1: digits has no published folds"),
        (["--labels-per-class", "20"], "--labels-per-class 20: asks for 20 labels of class '2', which has 10"),
        (["--labeled-ids", "none.txt"], "--labeled-ids none.txt: cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said_before_a_folder_is_made(
    flags: list[str], message: str, unbalanced: Path, warm_cli: Any, tiny: list[str], tmp_path: Path
) -> None:
    failed = warm_cli("run", "--preset", "digits", *tiny, "--data", unbalanced, *flags, "--out", tmp_path / "run")
    assert failed.returncode == 2
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (tmp_path / "run").exists()


def test_named_ids_are_labelled_and_a_later_command_uses_the_saved_split(
    unbalanced: Path, warm_cli: Any, tiny: list[str], tmp_path: Path
) -> None:
    ids = [f"train-{row:05d}" for row in (0, 5, 121, 151)]
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    run = tmp_path / "run"
    done = warm_cli(
        "lfs", "--preset", "digits", *tiny, "--data", unbalanced, "--labeled-ids", tmp_path / "ids.txt", "--out", run
    )
    assert done.returncode == 0, done.stderr
    labeled = dict(zip(ids, (0, 0, 1, 2), strict=True))
    assert json.loads((run / "split.json").read_text())["labeled"] == labeled
    (tmp_path / "ids.txt").unlink()
    done = warm_cli("label", run)
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "summary.json").read_text())["n_labeled"] == 4


def test_other_shares_for_step_2_alone_and_nothing_lost_where_they_do_not_fit(
    tiny_run: Path, warm_cli: Any, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    before = (run / "soft_labels.npz").read_bytes()
    failed = warm_cli("label", run, "--redo", "--class-prior", "1,2,3")
    assert failed.returncode == 2
    assert "--class-prior '1,2,3': has 3 numbers for 10 classes" in failed.stderr
    assert (run / "soft_labels.npz").read_bytes() == before
    assert (run / "end_model.safetensors").exists()
    done = warm_cli("label", run, "--redo", "--class-prior", "uniform")
    assert done.returncode == 0, done.stderr
    assert np.allclose(LabelModel.load(run / "label_model.safetensors").class_balance_, 0.1)


def test_a_file_of_votes_takes_shares_too(warm_cli: Any, tmp_path: Path) -> None:
    """Two fair LFs of an unbalanced set; the rows without a vote get the shares."""
    draws = np.random.default_rng(0)
    truth = draws.choice(2, 400, p=[0.9, 0.1])
    votes = np.where(draws.random((400, 4)) < 0.8, truth[:, None], 1 - truth[:, None])
    votes[:5] = -1
    np.savez(tmp_path / "votes.npz", votes=votes)
    done = warm_cli("label", tmp_path / "votes.npz", "--class-prior", "0.9,0.1", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out" / "soft_labels.npz") as file:
        assert np.allclose(file["soft_labels"][:5], [0.9, 0.1])
        assert (file["soft_labels"].argmax(1) == truth)[5:].mean() > 0.88
    failed = warm_cli("label", tmp_path / "votes.npz", "--class-prior", "labels", "--out", tmp_path / "other")
    assert failed.returncode == 2
    assert "--class-prior labels: class 0 has no label" in failed.stderr

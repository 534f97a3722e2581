"""`dpssl label VOTES`: the label model on a file of votes, without images."""

import csv
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpssl import LabelModel, label_votes
from dpssl.config import LabelModelConfig
from dpssl.errors import RunFolderError
from dpssl.label_model import DEFAULT_VARIANT
from dpssl.run_folder import RunFolder

N_ROWS, N_LFS, CLASSES = 300, 8, ["cat", "dog", "owl"]
IDS = [f"row-{number}" for number in range(N_ROWS)]
RESULTS = {"soft_labels.csv", "soft_labels.npz", "label_model.safetensors"}


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    """Votes of eight LFs on three classes, right about three times in four, and how sure they were."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, N_ROWS)
    right = rng.random((N_ROWS, N_LFS)) < np.linspace(0.5, 0.95, N_LFS)
    votes = np.where(right, truth[:, None], rng.integers(0, 3, (N_ROWS, N_LFS))).astype(np.int8)
    votes[rng.random(votes.shape) < 0.4] = -1
    votes[5] = -1
    confidence = np.where(right, rng.uniform(0.7, 1.0, right.shape), rng.uniform(0.4, 0.8, right.shape))
    return {
        "votes": votes, "confidence": confidence.astype(np.float32), "ids": np.array(IDS),
        "class_names": np.array(CLASSES),
    }  # fmt: skip


@pytest.fixture
def votes_npz(arrays: dict[str, np.ndarray], tmp_path: Path) -> Path:
    np.savez(tmp_path / "votes.npz", **arrays)
    return tmp_path / "votes.npz"


def read_table(folder: Path) -> list[dict[str, str]]:
    with (folder / "soft_labels.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_proba(folder: Path) -> np.ndarray:
    with np.load(folder / "soft_labels.npz") as archive:
        return archive["soft_labels"]


def test_prints_the_table_and_writes_soft_labels(
    warm_cli: Any, votes_npz: Path, arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    done = warm_cli("label", votes_npz, "--out", "soft", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "soft").iterdir()} == RESULTS
    model = LabelModel(class_names=CLASSES).fit(arrays["votes"], confidence=arrays["confidence"])
    assert done.stdout.startswith(str(model.lf_summary()))
    assert f"300 rows, 3 classes, model {DEFAULT_VARIANT}; 99.67 % covered" in done.stdout
    expected = model.predict_proba(arrays["votes"], arrays["confidence"])
    np.testing.assert_allclose(read_proba(tmp_path / "soft"), expected, atol=1e-6)
    rows = read_table(tmp_path / "soft")
    assert [row["id"] for row in rows] == IDS
    assert [row["label"] for row in rows[:5]] == [CLASSES[label] for label in expected[:5].argmax(1)]
    assert rows[5]["label"] == ""
    assert rows[5]["covered"] == "False"
    loaded = LabelModel.load(tmp_path / "soft" / "label_model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(arrays["votes"], arrays["confidence"]), expected)


@pytest.mark.parametrize("ending", ["npz", "npy", "csv", "parquet"])
def test_every_kind_of_file(warm_cli: Any, arrays: dict[str, np.ndarray], tmp_path: Path, ending: str) -> None:
    votes = arrays["votes"]
    frame = pd.DataFrame(votes, columns=[f"lf{k}" for k in range(N_LFS)])
    path = tmp_path / f"votes.{ending}"
    if ending == "npz":
        np.savez(path, L=votes)
    elif ending == "npy":
        np.save(path, votes)
    elif ending == "csv":
        frame.replace(-1, np.nan).astype("Int64").to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    done = warm_cli("label", path, "--out", "soft", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(read_proba(tmp_path / "soft"), LabelModel(3).fit(votes).predict_proba(votes), atol=1e-6)
    assert [row["id"] for row in read_table(tmp_path / "soft")] == [str(row) for row in range(N_ROWS)]
    assert ("\nlf0  " in done.stdout) == (ending in ("csv", "parquet")), "columns have names there"


def test_the_model_and_the_use_of_confidences_can_be_chosen(
    warm_cli: Any, votes_npz: Path, arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    votes, confidence = arrays["votes"], arrays["confidence"]
    for flags, expected in (
        (["--label-model", "majority"], LabelModel(3, "majority").fit(votes).predict_proba(votes, confidence)),
        (["--use-confidence", "false"], LabelModel(3).fit(votes).predict_proba(votes)),
        (["--label-model", "dawid-skene"], LabelModel(3, "dawid-skene").fit(votes).predict_proba(votes)),
    ):
        done = warm_cli("label", votes_npz, *flags, "--out", flags[1], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(read_proba(tmp_path / flags[1]), expected, atol=1e-6)


def test_labels_are_class_names_or_numbers(
    warm_cli: Any, votes_npz: Path, arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """Both tables mean the same; an empty label, or -1, is none."""
    known = {row: 2 - row % 3 for row in range(60)}
    (tmp_path / "names.csv").write_text(
        "id,label\n" + "".join(f"row-{row},{CLASSES[label]}\n" for row, label in known.items()) + "row-99,\n"
    )
    (tmp_path / "numbers.csv").write_text(
        "label,note,id\n" + "".join(f"{label},x,row-{row}\n" for row, label in known.items()) + "-1,,row-99\n"
    )
    y = np.full(N_ROWS, -1)
    y[list(known)] = list(known.values())
    model = LabelModel(3, "dawid-skene").fit(arrays["votes"], y)
    for name in ("names", "numbers"):
        done = warm_cli(
            "label", votes_npz, "--labels", f"{name}.csv", "--label-model", "dawid-skene", "--out", name, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(read_proba(tmp_path / name), model.predict_proba(arrays["votes"]), atol=1e-6)
        assert " of " in done.stdout.splitlines()[1], "accuracy on the labelled rows"
        assert warm_cli("export", name, "--to", "csv", cwd=tmp_path).returncode == 0
        with (tmp_path / name / "export" / "labels.csv").open(newline="", encoding="utf-8") as file:
            exported = list(csv.DictReader(file))
        assert [row["source"] for row in exported] == ["given"] * 60 + ["model"] * (N_ROWS - 60)
        assert [row["label"] for row in exported[:60]] == [CLASSES[label] for label in known.values()]


def test_row_numbers_are_ids_where_there_are_none(warm_cli: Any, arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    np.save(tmp_path / "votes.npy", arrays["votes"])
    (tmp_path / "known.csv").write_text("id,label\n0,1\n299,2\n")
    done = warm_cli("label", "votes.npy", "--labels", "known.csv", "--out", "soft", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for id in ("300", "-1", "", "1.0", "٣"):
        (tmp_path / "known.csv").write_text(f"id,label\n{id},1\n", encoding="utf-8")
        failed = warm_cli("label", "votes.npy", "--labels", "known.csv", "--out", "new", cwd=tmp_path)
        assert (failed.returncode, f"no row of the votes has the id {id!r}" in failed.stderr) == (2, True)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("id,label\nrow-0,cat\nrow-900,cat\n", "line 3: no row of the votes has the id 'row-900'"),
        ("id,label\nrow-0,wolf\n", "line 2: 'wolf' is no class number, and the classes are cat, dog, owl"),
        ("id,label\nrow-0,3\n", "line 2: label 3 is outside the range; classes are 0 to 2"),
        ("id,label\nrow-0,-2\n", "line 2: label -2 is outside the range; classes are 0 to 2"),
        ("id,label\nrow-0,cat\nrow-0,dog\n", "line 3: 'row-0' has another label further up"),
        ("id,label\nrow-0\n", "line 2: fewer cells"),
        ("", "needs the columns id and label"),
        ('id,label\nrow-0,cat\nrow-1,"dog\n' + 20_000 * "row-2,cat\n", "line 3: field larger than field limit"),
        ('id,"label\n' + 20_000 * "row-2,cat\n", "line 1: field larger than field limit"),
    ],
)
def test_unusable_labels_are_named(warm_cli: Any, votes_npz: Path, tmp_path: Path, labels: str, message: str) -> None:
    (tmp_path / "known.csv").write_text(labels)
    failed = warm_cli("label", votes_npz, "--labels", "known.csv", "--out", "soft", cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr.startswith("dpssl label: --labels known.csv")
    assert message in failed.stderr
    assert not (tmp_path / "soft").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ids": np.array(["a"])}, "ids have shape (1,)"),
        ({"ids": np.array(["a", "b", *IDS[2:-1], "b"])}, "the id 'b' is that of 2 rows (rows 1, 299), but"),
        ({"votes": np.full((N_ROWS, N_LFS), 7)}, "row 0 has the vote 7"),
        ({"votes": np.full((N_ROWS, N_LFS), np.nan)}, "row 0 has the vote nan"),
        ({"votes": np.full((N_ROWS, N_LFS), "cow")}, "row 0: 'cow' is no class; the classes are cat, dog, owl"),
        ({"votes": np.full((N_ROWS, N_LFS), True)}, "votes have type bool"),
        ({"votes": np.zeros(N_ROWS, dtype=int)}, "give a matrix"),
        ({"votes": np.zeros((0, N_LFS), dtype=int), "ids": np.zeros(0, "U1"), "confidence": np.zeros(0)}, "empty"),
        ({"confidence": np.full((N_ROWS, N_LFS), 7.0)}, "confidence[0, "),
        ({"specialties": np.ones(3, dtype=bool)}, "specialties have shape (3,)"),
    ],
)
def test_unusable_votes_are_named(
    warm_cli: Any, arrays: dict[str, np.ndarray], tmp_path: Path, changed: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "bad.npz", **{**arrays, **changed})
    failed = warm_cli("label", "bad.npz", "--out", "soft", cwd=tmp_path)
    assert failed.returncode == 2, failed.stderr
    assert failed.stderr.startswith("dpssl label: bad.npz: ")
    assert message in failed.stderr


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        (np.zeros((4, 3), dtype=np.int8), "fewer than two classes"),
        (np.full((4, 3), 10**6), "names class 1e+06"),
        (np.full((4, 3), np.nan), "row 0 has the vote nan"),
        (np.full((4, 3), "x"), "fewer than two classes"),
        (np.full((4, 3), True), "votes have type bool"),
    ],
)
def test_votes_without_class_names(warm_cli: Any, tmp_path: Path, votes: np.ndarray, message: str) -> None:
    np.save(tmp_path / "bad.npy", votes)
    failed = warm_cli("label", "bad.npy", "--out", "soft", cwd=tmp_path)
    assert failed.returncode == 2, failed.stderr
    assert failed.stderr.startswith("dpssl label: bad.npy: ")
    assert message in failed.stderr


def test_votes_by_name_one_a_line(warm_cli: Any, arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    """What crowd-kit takes: the same labels as from a table, and a model that knows its classes."""
    votes = arrays["votes"]
    lines = [(IDS[row], f"w{lf}", CLASSES[votes[row, lf]]) for row, lf in np.argwhere(votes >= 0)]
    pd.DataFrame(lines, columns=["task", "worker", "label"]).to_csv(tmp_path / "crowd.csv", index=False)
    (tmp_path / "known.csv").write_text("id,label\nrow-0,cat\nrow-7,owl\n")
    done = warm_cli("label", "crowd.csv", "--labels", "known.csv", "--out", "soft", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "w3  cat,dog,owl" in done.stdout
    rows = {row["id"]: row for row in read_table(tmp_path / "soft")}
    assert set(rows) == set(IDS) - {"row-5"}, "nobody answered that one"
    model = LabelModel.load(tmp_path / "soft" / "label_model.safetensors")
    assert model.classes_.tolist() == CLASSES
    given = [IDS.index(id) for id in rows]
    columns = [int(name.removeprefix("w")) for name in model.lf_summary().lf_names]
    assert model.predict(votes[given][:, columns]).tolist() == [row["label"] for row in rows.values()]


@pytest.mark.parametrize("ending", ["npz", "npy", "csv", "parquet"])
def test_damaged_files_are_named(warm_cli: Any, votes_npz: Path, tmp_path: Path, ending: str) -> None:
    content = {"csv": b"a,b\n1,\xff\n"}.get(ending, votes_npz.read_bytes()[:200])
    (tmp_path / f"bad.{ending}").write_bytes(content)
    failed = warm_cli("label", f"bad.{ending}", "--out", "soft", cwd=tmp_path)
    assert failed.returncode == 2, failed.stderr
    assert failed.stderr.startswith(f"dpssl label: bad.{ending}: ")
    assert not (tmp_path / "soft").exists()


def test_an_output_that_cannot_be_written_is_named(warm_cli: Any, votes_npz: Path, tmp_path: Path) -> None:
    failed = warm_cli("label", votes_npz, "--out", votes_npz / "soft", cwd=tmp_path)
    assert failed.returncode == 2
    assert f"--out {votes_npz / 'soft'}: cannot make the run folder" in failed.stderr
    full = warm_cli("label", votes_npz, "--out", "soft", cwd=tmp_path, largest_file=6000)
    assert full.returncode == 2, full.stderr
    assert "cannot be written" in full.stderr or "cannot write" in full.stderr
    assert not {path.name for path in (tmp_path / "soft").iterdir()} & {"soft_labels.csv", "soft_labels.npz"}


def test_a_disk_that_fills_up_is_told_once(votes_npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive is written while the table is open; the error is the archive's alone."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    with pytest.raises(RunFolderError) as problem:
        label_votes.label_vote_file(str(votes_npz), None, str(tmp_path / "soft"), LabelModelConfig())
    archive = tmp_path / "soft" / "soft_labels.npz"
    assert str(problem.value).startswith(f"{archive}: cannot be written (No space left on device); free some space")
    assert os.listdir(tmp_path / "soft") == ["label_model.safetensors"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--label-model", "oracle"], "--label-model 'oracle'"), (["--redo"], "--redo: only for a run")],
)
def test_unusable_flags(warm_cli: Any, votes_npz: Path, tmp_path: Path, flags: list[str], message: str) -> None:
    failed = warm_cli("label", votes_npz, *flags, "--out", "soft", cwd=tmp_path)
    assert failed.returncode == 2
    assert message in failed.stderr
    assert not (tmp_path / "soft").exists()


ONLY_THE_LABEL_MODEL = """
import sys
sys.addaudithook(lambda event, arguments: sys.exit(f"{event} {arguments}") if event == "socket.connect" else None)
from dpssl.cli import main
status = main(sys.argv[1:])
unwanted = ("dpssl.data", "dpssl.nets", "dpssl.training", "dpssl.pipeline", "PIL", "sklearn")
sys.exit(status or ", ".join(name for name in unwanted if name in sys.modules) or 0)
"""


def test_imports_no_image_code_and_opens_no_connection(votes_npz: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ONLY_THE_LABEL_MODEL, "label", str(votes_npz), "--out", str(tmp_path / "soft")],
        capture_output=True, text=True, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "soft" / "soft_labels.csv").exists()


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`small_chunks(7)`: seven rows at a time, as if there were millions."""

    def set_rows(rows: int) -> None:
        monkeypatch.setattr(label_votes, "chunks", lambda n, _: (slice(i, min(i + rows, n)) for i in range(0, n, rows)))

    return set_rows


@pytest.mark.parametrize("with_ids", [True, False])
def test_chunks_give_the_same_bytes(
    arrays: dict[str, np.ndarray], tmp_path: Path, small_chunks: Callable[[int], None], with_ids: bool
) -> None:
    """Soft labels written in pieces are the files that a run folder writes from memory."""
    stored = {key: value for key, value in arrays.items() if with_ids or key != "ids"}
    np.savez(tmp_path / "votes.npz", **stored)
    small_chunks(7)
    label_votes.label_vote_file(str(tmp_path / "votes.npz"), None, str(tmp_path / "pieces"), LabelModelConfig())
    model = LabelModel.load(tmp_path / "pieces" / "label_model.safetensors")
    whole = RunFolder.create(str(tmp_path / "whole"))
    ids = IDS if with_ids else [str(row) for row in range(N_ROWS)]
    proba = model.predict_proba(arrays["votes"], arrays["confidence"])
    whole.write_soft_labels(ids, CLASSES, proba, (arrays["votes"] != -1).any(1))
    for name in ("soft_labels.csv", "soft_labels.npz"):
        assert (tmp_path / "pieces" / name).read_bytes() == whole.path(name).read_bytes()

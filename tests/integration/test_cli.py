"""The command line through real processes: the files of a run, its steps one by one, settings, seeds and folders."""

import csv
import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from dpssl.config import Config, from_toml, options

FILES = {
    "config.toml", "images.json", "split.json", "votes.npz", "lf_model.safetensors", "label_model.safetensors",
    "soft_labels.npz", "soft_labels.csv", "end_model.safetensors", "embeddings.npz", "metrics.jsonl", "summary.json",
    "progress.json",
}  # fmt: skip
N_IMAGES, N_TEST, N_LABELS, N_CLASSES, N_LFS = 1437, 360, 40, 10, 6


@pytest.fixture
def run_copy(tiny_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


# One whole run, started as a user starts it


def test_run_from_preset_config_file_and_flags(
    run_cli: Any, tiny: list[str], tiny_run: Path, tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    """The same settings from three places make the same run; each place overrides the one before."""
    names = [name.removeprefix("--").replace("-", "_") for name in tiny[::2]]
    values = dict(zip(names, tiny[1::2], strict=True)) | {"n_lfs": 9, "device": '"cpu"'}
    (tmp_path / "tiny.toml").write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
    done = run_cli("run", "--preset", "digits", "--config", "tiny.toml", "--n-lfs", N_LFS)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for shown in ("annotation accuracy", "macro F1", "coverage", "test accuracy", "runs/run-001"):
        assert shown in done.stdout
    assert "labeling functions: 6/6" in done.stderr
    assert differing(fingerprint(tmp_path / "runs" / "run-001"), fingerprint(tiny_run)) == []


def test_every_file_is_there_and_nothing_else(tiny_run: Path) -> None:
    assert {path.name for path in tiny_run.iterdir()} - {"checkpoint", ".lock"} == FILES


def test_config_is_complete_and_can_be_used_again(tiny_run: Path) -> None:
    text = (tiny_run / "config.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    for entry in options():
        assert entry.name in document[entry.section]
    assert set(document["environment"]) == {"dpssl", "torch", "python", "device", "settings"}
    config = from_toml(text)
    assert config.labeling.n_lfs == N_LFS  # a flag
    assert config.backbone.depth == 10  # the preset that the data brings along
    assert config.optim.momentum == Config().optim.momentum  # a default


def test_split_parts_the_images(tiny_run: Path) -> None:
    split = json.loads((tiny_run / "split.json").read_text(encoding="utf-8"))
    assert {"labeled", "unlabeled", "test"} <= split.keys()
    assert sorted(split["labeled"].values()) == sorted(list(range(N_CLASSES)) * 4)
    every = [*split["labeled"], *split["unlabeled"], *split["test"]]
    assert len(set(every)) == len(every) == N_IMAGES + N_TEST
    assert len(split["test"]) == N_TEST


def test_votes(tiny_run: Path) -> None:
    arrays = arrays_of(tiny_run / "votes.npz")
    assert arrays.keys() == {"votes", "confidence", "specialties", "ids", "class_names"}
    votes, confidence, specialties = arrays["votes"], arrays["confidence"], arrays["specialties"]
    assert (votes.dtype, votes.shape) == (np.int8, (N_IMAGES, N_LFS))
    assert (confidence.dtype, confidence.shape) == (np.float16, (N_IMAGES, N_LFS))
    assert (specialties.dtype, specialties.shape) == (np.bool_, (N_LFS, N_CLASSES))
    assert votes.min() >= -1
    assert ((confidence > 0) & (confidence <= 1)).all()
    lfs = np.broadcast_to(np.arange(N_LFS), votes.shape)
    assert specialties[lfs[votes >= 0], votes[votes >= 0]].all(), "an LF votes for its own classes only"
    assert arrays["class_names"].tolist() == list("0123456789")
    assert len(set(arrays["ids"].tolist())) == N_IMAGES


def test_soft_labels(tiny_run: Path) -> None:
    arrays, votes = arrays_of(tiny_run / "soft_labels.npz"), arrays_of(tiny_run / "votes.npz")
    soft_labels = arrays["soft_labels"]
    assert (soft_labels.dtype, soft_labels.shape) == (np.float32, (N_IMAGES, N_CLASSES))
    np.testing.assert_allclose(soft_labels.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(arrays["covered"], (votes["votes"] >= 0).any(1))
    np.testing.assert_array_equal(arrays["ids"], votes["ids"])

    with (tiny_run / "soft_labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "label", "confidence", "covered"]
    assert [row["id"] for row in rows] == arrays["ids"].tolist()
    for row, probabilities, covered in zip(rows, soft_labels, arrays["covered"], strict=True):
        assert row["label"] == (str(probabilities.argmax()) if covered else "")
        assert float(row["confidence"]) == pytest.approx(probabilities.max(), abs=1e-6)
        assert row["covered"] == str(bool(covered))


def test_weights_and_embeddings(tiny_run: Path) -> None:
    for name in ("lf_model", "label_model", "end_model"):
        with safe_open(tiny_run / f"{name}.safetensors", framework="numpy") as file:
            assert file.metadata()
    with safe_open(tiny_run / "end_model.safetensors", framework="numpy") as file:
        metadata = json.loads(file.metadata()["dpssl"])["metadata"]
    assert metadata["architecture"] == "wide-resnet"
    assert metadata["class_names"] == list("0123456789")
    arrays = arrays_of(tiny_run / "embeddings.npz")
    assert arrays["embeddings"].dtype == np.float16
    assert len(arrays["embeddings"]) == len(arrays["ids"]) == N_IMAGES


def test_metrics_name_stage_and_step(tiny_run: Path) -> None:
    lines = list(map(json.loads, (tiny_run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()))
    expected = [("mcl", 2), ("mcl", 4), ("lfs", 2), ("lfs", 4), ("lfs", 6), ("votes", 0), ("end", 2), ("end", 4)]
    assert [(line["stage"], line["step"]) for line in lines] == expected


def test_summary_keys(tiny_run: Path) -> None:
    summary = summary_of(tiny_run)
    for name in ("annotation_accuracy", "annotation_macro_f1", "coverage", "test_accuracy", "majority_vote_accuracy"):
        assert 0 <= summary[name] <= 1
    assert summary["seed"] == 1
    assert summary["device"].startswith("cpu")
    assert summary["minutes"] == pytest.approx(sum(summary["minutes_per_step"].values()), abs=1e-3)
    assert summary["minutes_per_step"].keys() == {"lfs", "label", "train"}
    assert (summary["n_images"], summary["n_labeled"], summary["n_test"]) == (N_IMAGES, N_LABELS, N_TEST)
    for name in ("specialists_per_class", "effective_lfs_per_class", "per_class"):
        assert len(summary[name]) == N_CLASSES
    for name in ("assignment_entropy", "feature_cosine", "n_empty_sets", "n_duplicate_sets", "share_of_empty_rows"):
        assert isinstance(summary[name], int | float)


# Steps, seeds, folders


def test_each_step_alone_makes_what_run_makes(
    warm_cli: Any, tiny: list[str], tiny_run: Path, tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    folder = tmp_path / "run"
    done = warm_cli("lfs", *tiny, "--out", folder)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in folder.iterdir()} - {"checkpoint", ".lock"} == FILES - {
        "label_model.safetensors", "soft_labels.npz", "soft_labels.csv", "end_model.safetensors", "embeddings.npz",
    }  # fmt: skip
    assert "soft_labels.csv" not in done.stdout
    assert summary_of(folder)["told_apart_by_size"] is None  # nobody to ask yet
    for step in ("label", "train", "evaluate"):
        done = warm_cli(step, folder)
        assert done.returncode == 0, done.stderr
    assert isinstance(summary_of(folder)["told_apart_by_size"], list)
    assert differing(fingerprint(folder), fingerprint(tiny_run)) == []
    timed = {"minutes", "minutes_per_step"}
    one, other = summary_of(folder), summary_of(tiny_run)
    assert {key: one[key] for key in one.keys() - timed} == {key: other[key] for key in other.keys() - timed}


def test_evaluate_writes_the_summary_again(warm_cli: Any, run_copy: Path, tiny_run: Path) -> None:
    (run_copy / "summary.json").unlink()
    assert warm_cli("evaluate", run_copy).returncode == 0
    assert summary_of(run_copy) == summary_of(tiny_run)


def test_evaluate_changes_no_setting(warm_cli: Any, run_copy: Path) -> None:
    before = (run_copy / "config.toml").read_bytes()
    assert warm_cli("evaluate", run_copy, "--threads", 2).returncode == 0
    assert (run_copy / "config.toml").read_bytes() == before


def test_the_summary_is_made_once(monkeypatch: pytest.MonkeyPatch, run_copy: Path) -> None:
    from dpssl import cli, pipeline

    calls = []
    summarize = pipeline.summarize
    monkeypatch.setattr(pipeline, "summarize", lambda *args: calls.append(1) or summarize(*args))
    assert cli.main(["resume", str(run_copy)]) == 0
    assert len(calls) == 1


def test_label_needs_no_gpu(warm_cli: Any, run_copy: Path, tiny_run: Path) -> None:
    """Step 2 of a run that was made on a GPU, on a machine without one; the summary tells what trained."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    text = (run_copy / "config.toml").read_text(encoding="utf-8")
    text = re.sub('device = "cpu"', 'device = "cuda"', text)
    (run_copy / "config.toml").write_text(re.sub('device = "cpu, .*"', 'device = "H200"', text), encoding="utf-8")
    done = warm_cli("label", run_copy, "--redo", "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert (run_copy / "soft_labels.npz").read_bytes() == (tiny_run / "soft_labels.npz").read_bytes()
    assert summary_of(run_copy)["device"] == "H200"
    refused = warm_cli("train", run_copy)
    assert refused.returncode == 2
    assert "--device cpu" in refused.stderr
    assert warm_cli("train", run_copy, "--device", "cpu").returncode == 0
    assert summary_of(run_copy)["device"].startswith("cpu")


def test_votes_in_another_order_are_joined_by_id(warm_cli: Any, run_copy: Path, tiny_run: Path) -> None:
    arrays = arrays_of(run_copy / "votes.npz")
    turned = {name: arrays[name][::-1] for name in ("votes", "confidence", "ids")}
    np.savez(run_copy / "votes.npz", **(arrays | turned))
    done = warm_cli("label", run_copy, "--redo")
    assert done.returncode == 0, done.stderr
    assert (run_copy / "soft_labels.npz").read_bytes() == (tiny_run / "soft_labels.npz").read_bytes()


def test_another_seed_is_another_run(
    warm_cli: Any, tiny: list[str], tiny_run: Path, tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    done = warm_cli("run", *tiny, "--seed", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = differing(fingerprint(tmp_path / "runs" / "run-001"), fingerprint(tiny_run))
    assert {"split.json", "votes.npz", "soft_labels.npz", "end_model.safetensors"} <= set(names)


def test_new_runs_get_new_folders(warm_cli: Any, tiny: list[str], tmp_path: Path) -> None:
    stopped_at_once = [*tiny, "--max-minutes", 1e-6]
    for number in (1, 2):
        assert warm_cli("lfs", *stopped_at_once, cwd=tmp_path).returncode == 0
        assert (tmp_path / "runs" / f"run-00{number}" / "config.toml").exists()


@pytest.mark.parametrize("command", ["run", "lfs"])
def test_an_existing_run_is_never_overwritten(command: str, warm_cli: Any, tiny: list[str], run_copy: Path) -> None:
    before = {path.name: path.read_bytes() for path in run_copy.iterdir() if path.is_file()}
    refused = warm_cli(command, *tiny, "--seed", 2, "--out", run_copy)
    assert refused.returncode == 2
    assert f"--out {run_copy}" in refused.stderr
    assert f"dpssl resume {run_copy}" in refused.stderr
    assert {path.name: path.read_bytes() for path in run_copy.iterdir() if path.is_file()} == before


def test_a_runs_config_makes_the_same_run_again(
    warm_cli: Any, tiny_run: Path, tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    done = warm_cli("run", "--config", tiny_run / "config.toml", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert differing(fingerprint(tmp_path / "run"), fingerprint(tiny_run)) == []


# --redo


@pytest.mark.parametrize("step", ["label", "train"])
def test_a_step_that_is_done_asks_for_redo(step: str, warm_cli: Any, run_copy: Path) -> None:
    refused = warm_cli(step, run_copy)
    assert refused.returncode == 2
    assert "--redo" in refused.stderr
    assert {path.name for path in run_copy.iterdir()} >= FILES


def test_redo_makes_a_step_again_and_removes_what_was_made_from_it(
    warm_cli: Any, run_copy: Path, tiny_run: Path, fingerprint: Any, differing: Any
) -> None:
    done = warm_cli("label", run_copy, "--redo", "--label-model", "majority")
    assert done.returncode == 0, done.stderr
    assert not (run_copy / "end_model.safetensors").exists()
    assert not (run_copy / "embeddings.npz").exists()
    assert summary_of(run_copy)["test_accuracy"] is None
    assert "train" not in summary_of(run_copy)["minutes_per_step"]
    assert warm_cli("train", run_copy).returncode == 0
    names = differing(fingerprint(run_copy), fingerprint(tiny_run))
    assert {"soft_labels.npz", "end_model.safetensors"} <= set(names)
    assert not {"votes.npz", "lf_model.safetensors", "split.json"} & set(names)
    assert from_toml((run_copy / "config.toml").read_text()).label_model.label_model == "majority"

    done = warm_cli("label", run_copy, "--redo", "--label-model", Config().label_model.label_model)
    assert done.returncode == 0, done.stderr
    assert warm_cli("train", run_copy).returncode == 0
    assert differing(fingerprint(run_copy), fingerprint(tiny_run)) == []


def test_redo_does_not_continue_the_old_checkpoint(warm_cli: Any, run_copy: Path) -> None:
    (run_copy / "end_model.safetensors").unlink()
    endless = ("--end-steps", 1_000_000)
    half = warm_cli("train", run_copy, *endless, "--max-minutes", 1e-6)
    assert half.returncode == 0, half.stderr
    assert [path.name for path in (run_copy / "checkpoint").iterdir()] == ["end-00000002"]

    refused = warm_cli("train", run_copy, "--end-steps", 6, "--max-minutes", 0)
    assert refused.returncode == 2
    assert "half made" in refused.stderr
    assert from_toml((run_copy / "config.toml").read_text()).end_model.end_steps == 1_000_000, "still resumable"
    done = warm_cli("train", run_copy, "--end-steps", 6, "--max-minutes", 0, "--redo")
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, (run_copy / "metrics.jsonl").read_text().splitlines())
    assert [line["step"] for line in lines if line["stage"] == "end"] == [2, 4, 6]


# Other data, and votes from elsewhere


def test_own_images_of_unknown_truth(warm_cli: Any, tiny: list[str], own_images: Callable[..., Path]) -> None:
    data = own_images(class_names=np.array(["zero", "one", "two"]))
    folder = data.parent / "run"
    done = warm_cli("run", "--preset", "digits", *tiny, "--data", data, "--out", folder)
    assert done.returncode == 0, done.stderr
    summary = summary_of(folder)
    assert summary["annotation_accuracy"] is None
    assert summary["test_accuracy"] is None
    assert summary["coverage"] is not None
    assert "annotation accuracy" not in done.stdout
    with (folder / "soft_labels.csv").open(newline="", encoding="utf-8") as file:
        assert {row["label"] for row in csv.DictReader(file)} <= {"zero", "one", "two", ""}


def test_label_on_a_file_of_votes(warm_cli: Any, tiny_run: Path, tmp_path: Path) -> None:
    """The votes of a run, as a file from elsewhere with the same known labels, give the run's own soft labels."""
    labeled = json.loads((tiny_run / "split.json").read_text(encoding="utf-8"))["labeled"]
    (tmp_path / "known.csv").write_text("id,label\n" + "".join(f"{id},{label}\n" for id, label in labeled.items()))
    done = warm_cli(
        "label", tiny_run / "votes.npz", "--labels", "known.csv", "--out", "soft",
        "--label-model", Config().label_model.label_model, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{N_IMAGES:,} rows" in done.stdout
    assert (tmp_path / "soft" / "soft_labels.npz").read_bytes() == (tiny_run / "soft_labels.npz").read_bytes()
    assert (tmp_path / "soft" / "label_model.safetensors").exists()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (b"id,label\ndigit-00000,seven\n", "line 2: 'seven' is no class number"),
        (b"id,label\nnobody,7\n", "line 2: no row of the votes has the id 'nobody'"),
        (b"name,label\ndigit-00000,7\n", "needs the columns id and label"),
        (b"\x93NUMPY\x01\x00", "cannot be read as a CSV file"),
        (None, "cannot be read as a CSV file"),
    ],
)
def test_unusable_labels_are_named(
    labels: bytes | None, message: str, warm_cli: Any, tiny_run: Path, tmp_path: Path
) -> None:
    if labels is not None:
        (tmp_path / "known.csv").write_bytes(labels)
    failed = warm_cli("label", tiny_run / "votes.npz", "--labels", "known.csv", "--out", "soft", cwd=tmp_path)
    assert failed.returncode == 2, failed.stderr
    assert failed.stderr.startswith("dpssl label: --labels known.csv")
    assert message in failed.stderr
    assert not (tmp_path / "soft").exists()


def test_label_never_overwrites(warm_cli: Any, run_copy: Path) -> None:
    before = (run_copy / "soft_labels.npz").read_bytes()
    refused = warm_cli("label", run_copy / "votes.npz", "--out", run_copy)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"dpssl label: --out {run_copy}"), "before the votes are fitted"
    assert (run_copy / "soft_labels.npz").read_bytes() == before


def test_flags_for_a_file_of_votes_are_refused_for_a_run(warm_cli: Any, run_copy: Path) -> None:
    failed = warm_cli("label", run_copy, "--redo", "--labels", "known.csv")
    assert failed.returncode == 2
    assert "--labels known.csv" in failed.stderr
    assert {path.name for path in run_copy.iterdir()} >= FILES

"""`dpssl fit`: its files, its resume, and what it refuses."""

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

TINY = ["--steps", 4, "--window", 2, "--batch-size", 10, "--unlabeled-ratio", 1, "--threads", 1, "--device", "cpu"]


def test_a_run_of_fixmatch_has_the_files_of_any_run(warm_cli: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ["--method-settings", "threshold=0.1"]
    done = warm_cli("fit", "--method", "fixmatch", *settings, *TINY, "--out", run)
    assert done.returncode == 0, done.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert summary["method"] == "fixmatch"
    assert summary["coverage"] == 1
    assert 0 <= summary["annotation_accuracy"] <= 1
    assert 0 <= summary["test_accuracy"] <= 1
    assert summary["mask_rate"] == 1  # no largest of ten probabilities is below .1
    assert summary["proxy_label_accuracy"] == pytest.approx(summary["annotation_accuracy"])
    assert summary["minutes_per_step"].keys() == {"fit"}
    with np.load(run / "soft_labels.npz", allow_pickle=False) as file:
        assert file["soft_labels"].sum(1) == pytest.approx(1)
    config = tomllib.loads((run / "config.toml").read_text())
    assert config["baseline"]["method_settings"] == ["threshold=0.1", "unlabeled_weight=1.0"]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["step"]) for line in lines] == [("fit", 2), ("fit", 4)]
    assert lines[0].keys() >= {"loss", "labeled_loss", "unlabeled_loss", "pseudo_label_rate", "minutes"}
    assert "specialists" not in done.stdout


def test_resume_finishes_a_fit_as_if_unbroken(warm_cli: Any, tmp_path: Path) -> None:
    def results(run: Path) -> dict[str, bytes]:
        names = ("soft_labels.npz", "end_model.safetensors", "embeddings.npz", "pseudo_labels.npz")
        return {name: (run / name).read_bytes() for name in names}

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert warm_cli("fit", "--method", "freematch", *TINY, "--out", whole).returncode == 0
    stopped = warm_cli("fit", "--method", "freematch", *TINY, "--out", broken, "--max-minutes", 0.000001)
    assert stopped.returncode == 0
    assert not (broken / "end_model.safetensors").exists()
    assert (broken / "checkpoint").exists()
    resumed = warm_cli("resume", broken, "--max-minutes", 0)
    assert resumed.returncode == 0, resumed.stderr
    assert results(broken) == results(whole)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "fixmutch"], "--method 'fixmutch': choose dp-ssl or"),
        ([], "--method: name the system to train, one of dp-ssl, "),
        (["--method", "fixmatch", "--method-settings", "tau=1"], "fixmatch has threshold, unlabeled_weight"),
    ],
)
def test_what_cannot_be_trained_is_named(warm_cli: Any, tmp_path: Path, arguments: list[str], message: str) -> None:
    done = warm_cli("fit", *arguments, *TINY, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["fit", "run"])
def test_a_flag_of_the_three_steps_is_refused(warm_cli: Any, tmp_path: Path, command: str) -> None:
    flags = ["--method", "fixmatch", "--n-lfs", 6, "--end-steps", 4, "--class-prior", "uniform"]
    done = warm_cli(command, *flags, *TINY, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "--n-lfs, --end-steps: only for DP-SSL's own steps, of which --method fixmatch has none" in done.stderr
    assert not (tmp_path / "run").exists()
    one = warm_cli(command, "--method", "fixmatch", "--label-model", "majority", *TINY, "--out", tmp_path / "run")
    assert "--label-model: only for DP-SSL's own steps" in one.stderr


def test_settings_of_the_three_steps_in_a_file_are_noted(
    warm_cli: Any, tiny_run: Path, own_images: Callable[..., Path], tmp_path: Path
) -> None:
    """Those of a run, to train another system likewise: a preset names them too, and is passed over in silence."""
    done = warm_cli("fit", "--method", "supervised", "--config", tiny_run / "config.toml", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert f"note: {tiny_run / 'config.toml'}: --method supervised makes no use of n_lfs, " in done.stderr
    assert "more, of DP-SSL's own steps\n" in done.stderr
    data = ["--data", own_images(), "--preset", "cifar10-40", "--depth", 10, "--width", 1, "--strides", 1, 2, 2]
    warm = ["--warm-steps", 1, "--warm-batch-size", 8]
    quiet = warm_cli("fit", "--method", "supervised", *data, *warm, *TINY, "--out", tmp_path / "preset")
    assert quiet.returncode == 0, quiet.stderr
    assert "DP-SSL's own steps" not in quiet.stderr


@pytest.fixture(scope="module")
def fitted(warm_cli: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("fit") / "run"
    done = warm_cli("fit", "--method", "supervised", *TINY, "--out", run)
    assert done.returncode == 0, done.stderr
    return run


@pytest.mark.parametrize("step", ["label", "train"])
def test_a_fit_has_no_steps_to_redo(warm_cli: Any, fitted: Path, step: str) -> None:
    done = warm_cli(step, fitted, "--redo")
    assert done.returncode == 2
    assert f"`dpssl fit --method supervised`, which has no step `{step}`" in done.stderr
    assert (fitted / "end_model.safetensors").exists()


@pytest.mark.parametrize("command", [("export", "--to", "csv"), ("report",), ("evaluate",)])
def test_what_reads_a_run_reads_a_fit(warm_cli: Any, fitted: Path, command: tuple[str, ...]) -> None:
    done = warm_cli(command[0], fitted, *command[1:])
    assert done.returncode == 0, done.stderr


def test_fully_supervised_needs_the_class_of_every_image(
    warm_cli: Any, tmp_path: Path, own_images: Callable[..., Path]
) -> None:
    done = warm_cli("fit", "--method", "fully-supervised", "--data", own_images(), *TINY, "--preset", "digits",
                    "--out", tmp_path / "run")  # fmt: skip
    assert done.returncode == 2
    assert "holds the class of no unlabelled image; choose supervised" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("method", "may_see_it"), [("usadtm", False), ("fully-supervised", True)])
def test_only_fully_supervised_sees_the_class_of_unlabelled_images(
    warm_cli: Any, tmp_path: Path, method: str, may_see_it: bool
) -> None:
    """The same run from its start, its labels as they were revealed, while the data now lie about all other images."""
    pixels, truth = load_digits(return_X_y=True)
    images, ids = (
        (pixels[:200].reshape(-1, 8, 8) * 15).astype(np.uint8),
        np.array([f"image-{row}" for row in range(200)]),
    )

    def write_data(train_y: np.ndarray) -> None:
        np.savez(
            tmp_path / "data.npz", train_x=images[:150], train_y=train_y, test_x=images[150:], test_y=truth[150:200],
            ids=ids[:150], class_names=np.array(list("0123456789")),
        )  # fmt: skip

    write_data(truth[:150])
    honest, lied_to = tmp_path / "honest", tmp_path / "lied_to"
    data = ["--data", tmp_path / "data.npz", "--preset", "digits"]
    assert warm_cli("fit", "--method", method, *data, *TINY, "--out", honest).returncode == 0
    lied_to.mkdir()
    for name in ("config.toml", "split.json"):
        shutil.copy(honest / name, lied_to / name)
    revealed = np.isin(ids[:150], list(json.loads((honest / "split.json").read_text())["labeled"]))
    write_data(np.where(revealed, truth[:150], (truth[:150] + 1) % 10))
    assert warm_cli("resume", lied_to).returncode == 0
    one, other = ((folder / "end_model.safetensors").read_bytes() for folder in (honest, lied_to))
    assert (one != other) == may_see_it


def test_a_teacher_too_slow_for_so_few_steps_is_told_of_beforehand(warm_cli: Any, tmp_path: Path) -> None:
    done = warm_cli("fit", "--method", "mean-teacher", *TINY, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "note: the teacher of mean-teacher is an average over" in done.stderr

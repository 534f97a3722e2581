"""A run that was killed, stopped or damaged and then resumed ends with the bytes of one that nothing disturbed."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file


@pytest.mark.parametrize(
    ("event", "text", "count"),
    [
        ("os.rename", "images.json", 1),  # the configuration is there, the rest is not
        ("os.rename", "split.json", 1),
        ("open", "metrics.jsonl", 1),
        ("os.rename", "mcl-00000002", 1),
        ("shutil.rmtree", "lfs-00000002.draft", 1),  # the first phase is over, the second has no checkpoint
        ("os.rename", "lfs-00000004", 1),
        ("shutil.rmtree", "lfs-00000002", 3),  # a third checkpoint is there, the first is about to go
        ("os.rename", "votes.npz", 1),
        ("os.rename", "progress.json", 1),  # the votes are there, their minutes are not
        ("shutil.rmtree", "lfs-00000004", 2),  # the votes are there, and half of the checkpoints
        ("os.rename", "label_model.safetensors", 1),
        ("os.rename", "soft_labels.npz", 1),
        ("os.rename", "end-00000004", 1),
        ("os.rename", "end_model.safetensors", 1),
        ("shutil.rmtree", "end-00000002", 3),
        ("os.rename", "summary.json", 1),
    ],
)
def test_killed_before_it_touches(
    event: str, text: str, count: int, begun: Callable[..., Path], warm_cli: Any, assert_same: Callable[[Path], None]
) -> None:
    folder = begun(text, count, event)
    resumed = warm_cli("resume", folder)
    assert resumed.returncode == 0, resumed.stderr
    assert "damaged" not in resumed.stderr
    assert_same(folder)
    assert [path.name for path in folder.iterdir() if path.name.endswith((".unfinished", ".draft", ".part"))] == []


def test_killed_before_it_has_a_configuration(begun: Callable[..., Path], warm_cli: Any) -> None:
    """Nothing was computed and nothing can be resumed; the advice must not lead back here."""
    folder = begun("config.toml")
    refused = warm_cli("resume", folder)
    assert refused.returncode == 2
    assert "config.toml" in refused.stderr
    assert "another --out" in refused.stderr


@pytest.mark.parametrize(
    "sign",
    ["config.toml", "checkpoint/mcl-00000002", "checkpoint/lfs-00000002", "votes.npz", "checkpoint/end-00000002"],
)
def test_killed_from_outside_after_this_appears(
    sign: str, warm_cli: Any, tiny: list[str], tmp_path: Path, assert_same: Callable[[Path], None], wait_until: Any
) -> None:
    folder = tmp_path / "run"
    command = warm_cli.start("run", *tiny, "--checkpoint-minutes", 0, "--out", folder)
    wait_until(lambda: (folder / sign).exists() or (folder / "summary.json").exists(), command)
    command.send(signal.SIGKILL)
    resumed = warm_cli("resume", folder)
    assert resumed.returncode == 0, resumed.stderr
    assert_same(folder)


def test_killed_and_resumed_in_fresh_interpreters(
    run_cli: Any, tiny: list[str], tmp_path: Path, assert_same: Callable[[Path], None], wait_until: Any
) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "dpssl", "run", *tiny, "--checkpoint-minutes", "0", "--out", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: (folder / "checkpoint" / "lfs-00000002").exists(), process)
        process.kill()
    resumed = run_cli("resume", folder)
    assert resumed.returncode == 0, resumed.stderr
    assert_same(folder)


def test_killed_twice_in_the_same_place(
    begun: Callable[..., Path], warm_cli: Any, assert_same: Callable[[Path], None]
) -> None:
    folder = begun("lfs-00000004")
    again = warm_cli("resume", folder, die_at=("os.rename", "lfs-00000006", 1))
    assert again.returncode == -signal.SIGKILL
    assert warm_cli("resume", folder).returncode == 0
    assert_same(folder)


def test_a_finished_run_stays_as_it_is(warm_cli: Any, tiny_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix}
    resumed = warm_cli("resume", folder)
    assert resumed.returncode == 0
    assert "test accuracy" in resumed.stdout
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix} == before


def test_a_first_phase_that_had_converged_is_not_trained_further(
    warm_cli: Any, tiny: list[str], tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    early = [*tiny, "--mcl-max-steps", 20, "--mcl-tolerance", 1000]  # any loss has converged after three windows
    unbroken, folder = tmp_path / "unbroken", tmp_path / "killed"
    assert warm_cli("run", *early, "--out", unbroken).returncode == 0
    assert max(line["step"] for line in fingerprint(unbroken)["metrics.jsonl"] if line["stage"] == "mcl") == 6
    killed = warm_cli(
        "run", *early, "--checkpoint-minutes", 0, "--out", folder, die_at=("shutil.rmtree", "lfs-00000002.draft", 1)
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert warm_cli("resume", folder).returncode == 0
    assert differing(fingerprint(folder), fingerprint(unbroken)) == []


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ("os.rename", "warm-00000002"),
        ("os.rename", "backbone.safetensors"),
        ("shutil.rmtree", "warm-00000002"),
        ("os.rename", "mcl-00000002"),
        ("os.rename", "lfs-00000004"),  # labels that have spread are worked out again
        ("os.rename", "end-00000002"),
    ],
)
def test_killed_with_a_warm_start(
    event: str,
    text: str,
    warm_cli: Any,
    tiny: list[str],
    tmp_path: Path,
    warmed: Path,
    fingerprint: Any,
    differing: Any,
) -> None:
    folder = tmp_path / "run"
    killed = warm_cli(
        "run", *tiny, *WARMED, "--checkpoint-minutes", 0, "--out", folder, die_at=(event, text, 1)
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = warm_cli("resume", folder)
    assert resumed.returncode == 0, resumed.stderr
    assert differing(fingerprint(folder), fingerprint(warmed)) == []
    assert (folder / "backbone.safetensors").read_bytes() == (warmed / "backbone.safetensors").read_bytes()
    assert list((folder / "checkpoint").glob("*")) == []


WARMED = (
    *("--warm-steps", 4, "--warm-batch-size", 16, "--warm-method", "byol", "--end-start", "scratch"),
    *(
        "--pseudo-labels",
        "consensus",
        "--curriculum-threshold",
        "false",
        "--propagation-steps",
        6,
        "--confidence-threshold",
        0.2,
    ),
)


@pytest.fixture(scope="module")
def warmed(warm_cli: Any, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warmed") / "run"
    done = warm_cli("run", *tiny, *WARMED, "--out", folder)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "summary.json").read_text())["minutes_per_step"].keys() == {
        "warm", "lfs", "label", "train"
    }  # fmt: skip
    return folder


def test_another_method_starts_from_the_weights_of_a_warm_start(
    warm_cli: Any, tiny_fit: list[str], warmed: Path, tmp_path: Path
) -> None:
    weights = warmed / "backbone.safetensors"
    flags = ("--method", "fixmatch", "--learning-rate", 0, *tiny_fit, "--out", tmp_path / "fit")
    done = warm_cli("fit", *flags, "--backbone-weights", weights)
    assert done.returncode == 0, done.stderr
    learnt, found = (load_file(path) for path in (weights, tmp_path / "fit" / "end_model.safetensors"))
    assert np.array_equal(learnt["stem.weight"], found["backbone.stem.weight"])


# Made again


@pytest.fixture(scope="module")
def redone(warm_cli: Any, tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Per step, the run whose step was made again with other settings, and finished."""
    folders = {}
    for step, flags in REDO.items():
        folders[step] = tmp_path_factory.mktemp("redone") / "run"
        shutil.copytree(tiny_run, folders[step])
        assert warm_cli(step, folders[step], "--redo", *flags).returncode == 0
        assert warm_cli("resume", folders[step]).returncode == 0
    return folders


REDO: dict[str, tuple[object, ...]] = {"label": ("--label-model", "majority"), "train": ("--end-steps", 6)}


@pytest.mark.parametrize(
    ("step", "event", "text"),
    [
        ("label", "os.remove", "end_model.safetensors"),
        ("label", "os.remove", "embeddings.npz"),
        ("label", "os.remove", "soft_labels.npz"),
        ("label", "os.rename", "progress.json"),
        ("label", "os.rename", "config.toml"),
        ("label", "os.rename", "soft_labels.npz"),
        ("train", "os.remove", "embeddings.npz"),
        ("train", "os.rename", "progress.json"),
        ("train", "os.rename", "config.toml"),
        ("train", "os.rename", "end_model.safetensors"),
    ],
)
def test_killed_as_it_makes_a_step_again(
    step: str, event: str, text: str, warm_cli: Any, tiny_run: Path, redone: dict[str, Path], tmp_path: Path,
    fingerprint: Any, differing: Any,
) -> None:  # fmt: skip
    """What is resumed is the run before or the run asked for: never one step of each."""
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    killed = warm_cli(step, folder, "--redo", *REDO[step], die_at=(event, text, 1))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = warm_cli("resume", folder)
    assert resumed.returncode == 0, resumed.stderr
    settings = (folder / "config.toml").read_text()
    expected = tiny_run if settings == (tiny_run / "config.toml").read_text() else redone[step]
    assert settings == (expected / "config.toml").read_text()
    assert differing(fingerprint(folder), fingerprint(expected)) == []


def test_new_soft_labels_leave_no_older_end_model(warm_cli: Any, tiny_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    (folder / "soft_labels.npz").unlink()
    done = warm_cli("label", folder, "--label-model", "majority")
    assert done.returncode == 0, done.stderr
    assert not (folder / "end_model.safetensors").exists()
    assert not (folder / "embeddings.npz").exists()
    assert json.loads((folder / "summary.json").read_text())["minutes_per_step"].keys() == {"lfs", "label"}


# The same images, wherever they are


def test_a_run_can_be_resumed_from_another_folder(
    warm_cli: Any, tiny: list[str], own_images: Callable[..., Path], tmp_path: Path
) -> None:
    data = own_images()
    stopped = warm_cli("lfs", "--preset", "digits", *tiny, "--data", data.name, "--out", "run", cwd=tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    (tmp_path / "elsewhere").mkdir()
    resumed = warm_cli("resume", "../run", cwd=tmp_path / "elsewhere")
    assert resumed.returncode == 0, resumed.stderr
    images = json.loads((tmp_path / "run" / "images.json").read_text())
    assert images["data"] == str(data.resolve())
    assert (images["shape"], images["dtype"], images["n_images"]) == ([8, 8, 1], "uint8", 40)

    moved = tmp_path / "moved"  # as on another machine: the old place is gone, --data holds from the new one
    moved.mkdir()
    data.rename(moved / data.name)
    assert warm_cli("resume", tmp_path / "run", cwd=moved).returncode == 0


def test_other_images_in_their_place_are_noticed(
    warm_cli: Any, tiny: list[str], own_images: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    data = own_images()
    done = warm_cli("lfs", "--preset", "digits", *tiny, "--data", data, "--out", folder)
    assert done.returncode == 0, done.stderr
    own_images(images=np.zeros((40, 8, 8), np.uint8))
    refused = warm_cli("resume", folder)
    assert refused.returncode == 2
    assert str(folder / "images.json") in refused.stderr
    assert refused.stderr.count(str(data)) == 2
    assert "sha256" in refused.stderr


# Damage


def damage(checkpoint: Path, how: str) -> None:
    weights = max(checkpoint.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    if how == "flipped bit":
        content = bytearray(weights.read_bytes())
        content[len(content) // 2] ^= 1
        weights.write_bytes(content)
    elif how == "cut file":
        weights.write_bytes(weights.read_bytes()[:100])
    elif how == "missing file":
        weights.unlink()
    else:
        (checkpoint / "manifest.json").write_text("{")


@pytest.mark.parametrize("how", ["flipped bit", "cut file", "missing file", "cut manifest"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    how: str, begun: Callable[..., Path], warm_cli: Any, assert_same: Callable[[Path], None]
) -> None:
    folder = begun("lfs-00000006")
    first, second = sorted((folder / "checkpoint").glob("lfs-*"))
    damage(second, how)
    resumed = warm_cli("resume", folder)
    assert resumed.returncode == 0, resumed.stderr
    assert f"{second} is damaged" in resumed.stderr
    assert f"{first} is damaged" not in resumed.stderr
    assert_same(folder)


def test_with_every_checkpoint_damaged_the_stage_starts_again(
    begun: Callable[..., Path], warm_cli: Any, assert_same: Callable[[Path], None]
) -> None:
    folder = begun("end_model.safetensors")
    checkpoints = sorted((folder / "checkpoint").glob("end-*"))
    assert len(checkpoints) == 2
    for checkpoint in checkpoints:
        damage(checkpoint, "flipped bit")
    resumed = warm_cli("resume", folder)
    assert resumed.returncode == 0, resumed.stderr
    assert all(f"{checkpoint} is damaged" in resumed.stderr for checkpoint in checkpoints)
    assert_same(folder)

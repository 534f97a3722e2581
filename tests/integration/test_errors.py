"""Bad input: one message that names the flag, file or row, the value met and what to do; status 2; nothing is lost."""

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SMALLER_THAN_WEIGHTS = 60_000  # bytes: the split fits


@pytest.fixture
def refused(warm_cli: Any, tmp_path: Path) -> Callable[..., str]:
    """`refused(command, ...)`: the one message with which a command is refused, in `tmp_path`."""

    def run(*args: object, **options: Any) -> str:
        failed = warm_cli(*args, cwd=tmp_path, **options)
        assert failed.returncode == 2, failed.stderr
        assert failed.stdout == ""
        (message,) = [line for line in failed.stderr.splitlines() if line.startswith(f"dpssl {args[0]}: ")]
        assert "Traceback" not in failed.stderr
        return message

    return run


@pytest.fixture
def run_copy(tiny_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_errors_in_a_fresh_interpreter(run_cli: Any, tmp_path: Path) -> None:
    """The others run in a process that has imported everything; this one shows that it makes no difference."""
    failed = run_cli("run", "--n-labels", 5)
    assert failed.returncode == 2
    assert failed.stderr == (
        "dpssl run: --n-labels 5: 10 classes need at least 10 labels; '5' would be a class without a labelled example\n"
    )
    assert list(tmp_path.iterdir()) == []


# Settings


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--n-lfs", "2", "--specialist-ratio", "0.5", "--label-model", "paper"], ["--n-lfs 2", "3 LFs or more"]),
        (["--n-lfs", "2", "--specialist-ratio", "0.5", "--label-model", "triplet"], ["--n-lfs 2", "3 LFs or more"]),
        (["--n-lfs", "4", "--specialist-ratio", "0.2"], ["--specialist-ratio 0.2", "--n-lfs 4", "0.25 to 1"]),
        (["--n-labels", "1437"], ["--n-labels 1437", "which has 142 images", "lower it"]),
        (["--n-labels", "9"], ["--n-labels 9", "'9' would be a class without a labelled example"]),
        (["--label-model", "oracle"], ["--label-model 'oracle'", "majority"]),
        (["--steps", "ten"], ["--steps", "expected int, got 'ten'"]),
        (["--steps", "0"], ["--steps 0", "at least 1"]),
        (["--seed", str(10**20)], ["--seed", str(10**20)]),
        (["--flip", "perhaps"], ["--flip", "true or false"]),
        (["--strong-ops", "rotate", "spin"], ["--strong-ops 'spin'", "rotate"]),
        (["--learning-rate", "nan"], ["--learning-rate nan"]),
        (["--test-fraction", "1.5"], ["--test-fraction 1.5"]),
        (["--depth", "11"], ["--depth 11", "10, 16"]),
        (["--data", "nowhere.npz"], ["--data nowhere.npz", "no such file"]),
        (["--config", "nowhere.toml"], ["--config nowhere.toml"]),
        (["--stepz", "20"], ["has no flag --stepz (did you mean --steps?)"]),
        (["--n_lfs=3"], ["has no flag --n_lfs (did you mean --n-lfs?)"]),
        (["--qwertyuiop"], ["has no flag --qwertyuiop; `--help` lists"]),
        (["--min-confidence", ".9"], ["has no flag --min-confidence (did you mean --use-confidence?)"]),
        (["digits"], ["does not take digits"]),
        (["--preset", "cifar10"], ["--preset 'cifar10' is unknown", "cifar10-40"]),
    ],
)
def test_a_setting_is_refused_before_a_folder_is_made(
    flags: Sequence[str], parts: Sequence[str], refused: Callable[..., str], tmp_path: Path
) -> None:
    message = refused("run", *flags)
    for part in parts:
        assert part in message
    assert not (tmp_path / "runs").exists()


def test_a_gpu_that_is_not_there(refused: Callable[..., str], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    message = refused("run", "--device", "cuda")
    assert "--device cuda" in message
    assert "--device cpu" in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("n_lfz = 6\n", ["settings.toml", "n_lfz", "(did you mean n_lfs?)"]),
        ("[lfs]\nn_lfs = 6\n", ["settings.toml", "[lfs]", "labeling"]),
        ('[labeling]\nn_lfs = "many"\n', ["settings.toml", "n-lfs", "'many'"]),
        ("[labeling]\nn_lfs = 2.5\n", ["settings.toml", "n-lfs", "2.5"]),
        ("[labeling]\nn_lfs = true\n", ["settings.toml", "n-lfs", "True"]),
        ("[labeling]\nn_lfs = inf\n", ["settings.toml", "n-lfs", "inf"]),
        ("[augment]\nstrong_ops = 5\n", ["settings.toml", "strong-ops", "5"]),
        ("n_lfs = = 6\n", ["settings.toml", "not valid TOML", "line 1"]),
    ],
)
def test_a_configuration_file_is_refused(
    text: str, parts: Sequence[str], refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "settings.toml").write_text(text)
    message = refused("run", "--config", "settings.toml")
    for part in parts:
        assert part in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("flags", [["--preset", "imagenet"], ["--stepz", "5"], ["--steps"], ["--n-lf", "5"]])
def test_unknown_flags_and_presets(flags: Sequence[str], warm_cli: Any, tmp_path: Path) -> None:
    failed = warm_cli("run", *flags, cwd=tmp_path)
    assert failed.returncode == 2
    assert flags[0] in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (tmp_path / "runs").exists()


# Images and labels


def float_images(**pixels: float) -> np.ndarray:
    images = np.zeros((40, 8, 8))
    images[7, 3, 2] = pixels["bad"]
    return images


@pytest.mark.parametrize(
    ("arrays", "parts"),
    [
        ({"labels": np.r_[0, 0, 2, 2, [-1] * 36]}, ["class '1' is a class without a labelled example"]),
        ({"labels": np.r_[0, 1, -7, [-1] * 37]}, ["row 2", "-7", "labels go from 0"]),
        ({"labels": np.r_[0, 1, 5, [-1] * 37], "class_names": np.array(["a", "b", "c"])}, ["row 2", "is 5", "0 to 2"]),
        ({"labels": np.arange(40) % 3}, ["no unlabelled images"]),
        ({"labels": np.zeros(39, dtype=int)}, ["array labels", "(39,)", "40 images"]),
        ({"labels": np.zeros(40)}, ["array labels", "float64"]),
        ({"images": float_images(bad=np.nan)}, ["array images", "image 7", "nan", "repair or drop"]),
        ({"images": float_images(bad=np.inf)}, ["array images", "image 7", "inf", "repair or drop"]),
        ({"images": float_images(bad=16.0)}, ["array images", "image 7", "16.0", "rescale"]),
        ({"images": np.full((40, 8, 8), 300)}, ["array images", "image 0", "300"]),
        ({"images": np.zeros((40, 64))}, ["array images", "(40, 64)"]),
        ({"images": np.array([np.zeros((8, 8)), np.zeros((9, 9))] * 20, dtype=object)}, ["own.npz", "plain arrays"]),
    ],
)
def test_unusable_images_and_labels_are_named(
    arrays: dict[str, np.ndarray],
    parts: Sequence[str],
    own_images: Callable[..., Path],
    refused: Callable[..., str],
    tmp_path: Path,
) -> None:
    message = refused("run", "--data", own_images(**arrays))
    for part in ["own", *parts]:
        assert part in message
    assert not (tmp_path / "runs").exists()


# The run folder


@pytest.mark.skipif(os.name != "posix", reason="names of other systems are text")
@pytest.mark.parametrize("name", ["data", "labels", "out"])
def test_a_name_that_is_not_utf8_is_refused(name: str, run_cli: Any, tmp_path: Path) -> None:
    """In a process of its own: its arguments are bytes there."""
    failed = run_cli("run", f"--{name}", os.fsdecode(b"fl\xffat"))
    assert failed.returncode == 2
    assert failed.stderr.startswith(f"dpssl run: --{name} ")
    assert failed.stderr.endswith("fl\\xffat: its name is not UTF-8, which the files of a run are; rename it\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_folder_that_cannot_be_made(out: str, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    message = refused("run", "--out", out)
    assert f"--out {out}" in message
    assert "choose another --out" in message
    assert (tmp_path / "file").read_text() == "not a folder"


def test_a_full_disk_stops_the_run_and_it_can_be_finished_later(
    refused: Callable[..., str],
    warm_cli: Any,
    tiny: list[str],
    tiny_run: Path,
    tmp_path: Path,
    fingerprint: Any,
    differing: Any,
) -> None:
    """A limit on the size of a file stands for the disk: the operating system refuses the write half-way."""
    folder = tmp_path / "run"
    message = refused("run", *tiny, "--out", folder, largest_file=SMALLER_THAN_WEIGHTS)
    assert str(folder / "lf_model.safetensors") in message
    assert "cannot be written" in message
    assert "free some space" in message
    assert not (folder / "votes.npz").exists()

    resumed = warm_cli("resume", folder)
    assert resumed.returncode == 0, resumed.stderr
    assert differing(fingerprint(folder), fingerprint(tiny_run)) == []


def test_a_full_disk_during_a_checkpoint(refused: Callable[..., str], tiny: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    message = refused("run", *tiny, "--checkpoint-minutes", 0, "--out", folder, largest_file=SMALLER_THAN_WEIGHTS)
    assert "mcl-00000002" in message
    assert "free some space" in message
    assert [path.name for path in (folder / "checkpoint").iterdir()] == []


@pytest.mark.parametrize("command", ["resume", "label", "train", "evaluate"])
def test_what_is_no_run_cannot_be_opened(command: str, refused: Callable[..., str], tmp_path: Path) -> None:
    message = refused(command, "nowhere")
    assert "nowhere: no such run folder" in message
    assert "dpssl" in message.partition("nowhere")[2], "a way out"
    (tmp_path / "empty").mkdir()
    message = refused(command, "empty")
    assert "empty" in message
    assert "config.toml" in message
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    ("command", "missing", "maker"),
    [
        ("label", "votes.npz", "dpssl lfs"),
        ("train", "soft_labels.npz", "dpssl label"),
        ("train", "lf_model.safetensors", "dpssl lfs"),
    ],
)
def test_a_step_names_the_step_before(
    command: str, missing: str, maker: str, refused: Callable[..., str], run_copy: Path
) -> None:
    result = {"label": "soft_labels.npz", "train": "end_model.safetensors"}[command]
    for name in (missing, result):
        (run_copy / name).unlink()
    message = refused(command, run_copy)
    assert missing in message
    assert maker in message


@pytest.mark.parametrize("n_lines", [0, 1, 5, 20, -1])
def test_a_config_cut_short_at_a_line_is_named(n_lines: int, refused: Callable[..., str], run_copy: Path) -> None:
    """What is left is valid TOML, and would mean the defaults for everything else."""
    (run_copy / "end_model.safetensors").unlink()
    lines = (run_copy / "config.toml").read_text().splitlines(keepends=True)
    (run_copy / "config.toml").write_text("".join(lines[:n_lines]))
    assert str(run_copy / "config.toml") in refused("resume", run_copy)


@pytest.mark.parametrize("name", ["votes.npz", "split.json", "config.toml", "progress.json"])
def test_a_damaged_file_is_named(name: str, refused: Callable[..., str], run_copy: Path) -> None:
    for result in ("soft_labels.npz", "end_model.safetensors"):
        (run_copy / result).unlink()
    content = (run_copy / name).read_bytes()
    (run_copy / name).write_bytes(content[: len(content) // 2])
    assert str(run_copy / name) in refused("resume", run_copy)


@pytest.mark.parametrize("command", ["resume", "label", "train"])
def test_one_command_writes_to_a_run_at_a_time(
    command: str, refused: Callable[..., str], warm_cli: Any, run_copy: Path
) -> None:
    pytest.importorskip("fcntl")
    from dpssl.runs import open_run

    run = open_run(run_copy)
    assert f"another dpssl (pid {os.getpid()}) is writing to {run_copy}" in refused(command, run_copy)
    assert warm_cli("evaluate", run_copy).returncode == 0, "writes no result"
    run.lock.close()
    assert "writing" not in warm_cli(command, run_copy).stderr


def test_one_command_starts_in_a_folder(refused: Callable[..., str], tiny: list[str], tmp_path: Path) -> None:
    """Both find it empty; the one that comes second to the lock gives way."""
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / ".lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        assert f"is writing to {tmp_path / 'run'}" in refused("run", *tiny, "--out", tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_rows_of_other_images_are_refused(refused: Callable[..., str], run_copy: Path) -> None:
    with np.load(run_copy / "votes.npz") as archive:
        arrays = dict(archive)
    arrays["ids"][0] = "nobody"
    np.savez(run_copy / "votes.npz", **arrays)
    files = files_of(run_copy)
    message = refused("label", run_copy, "--redo")
    assert str(run_copy / "votes.npz") in message
    assert "no row for the image 'digit-" in message
    assert files_of(run_copy) == files


# Another configuration


@pytest.mark.parametrize(
    ("command", "flag", "now", "before"),
    [
        ("resume", "--n-lfs", "7", "6"),
        ("resume", "--seed", "2", "1"),
        ("resume", "--label-model", "majority", "'"),
        ("train", "--seed", "2", "1"),
        ("evaluate", "--seed", "2", "1"),
    ],
)
def test_other_settings_make_another_run(
    command: str, flag: str, now: str, before: str, refused: Callable[..., str], run_copy: Path
) -> None:
    files = files_of(run_copy)
    message = refused(command, run_copy, flag, now)
    assert flag in message
    assert now in message
    assert f"started with {before}" in message
    assert files_of(run_copy) == files


def test_a_rate_of_step_1_is_no_flag_of_step_3(refused: Callable[..., str], run_copy: Path) -> None:
    message = refused("train", run_copy, "--redo", "--learning-rate", 0.1)
    assert "has no flag --learning-rate (did you mean --end-learning-rate?)" in message


def test_scoring_takes_no_limits_of_training(refused: Callable[..., str], run_copy: Path) -> None:
    assert "has no flag --max-minutes" in refused("evaluate", run_copy, "--max-minutes", 1)


@pytest.mark.parametrize("finished", [True, False])
def test_an_edited_configuration_is_refused(
    finished: bool, refused: Callable[..., str], warm_cli: Any, tiny: list[str], tiny_run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    if finished:
        shutil.copytree(tiny_run, folder)
    else:
        killed = warm_cli(
            "run", *tiny, "--checkpoint-minutes", 0, "--out", folder, die_at=("os.rename", "lfs-00000004", 1)
        )
        assert killed.returncode == -signal.SIGKILL
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("n_lfs = 6", "n_lfs = 7"))
    message = refused("resume", folder)
    assert str(folder / "config.toml") in message
    assert "was edited" in message
    assert "another --out" in message
    (folder / "config.toml").write_text(text)
    assert warm_cli("resume", folder).returncode == 0


def test_free_settings_may_change(warm_cli: Any, run_copy: Path) -> None:
    text = (run_copy / "config.toml").read_text()
    (run_copy / "config.toml").write_text(text.replace("checkpoint_minutes = 2.0", "checkpoint_minutes = 5.0"))
    assert warm_cli("resume", run_copy, "--max-minutes", 3).returncode == 0
    assert "max_minutes = 3.0" in (run_copy / "config.toml").read_text()


@pytest.mark.parametrize(
    "flags", [["label", "--label-model", "oracle"], ["train", "--end-steps", "0"], ["train", "--device", "gpu"]]
)
def test_a_redo_with_bad_flags_removes_nothing(
    flags: Sequence[str], refused: Callable[..., str], run_copy: Path
) -> None:
    files = files_of(run_copy)
    assert flags[1] in refused(flags[0], run_copy, "--redo", *flags[1:])
    assert files_of(run_copy) == files


@pytest.mark.parametrize(("step", "source"), [("label", "votes.npz"), ("train", "soft_labels.npz")])
@pytest.mark.parametrize("content", [None, b"half a f"])
def test_a_redo_without_its_source_removes_nothing(
    step: str, source: str, content: bytes | None, refused: Callable[..., str], run_copy: Path
) -> None:
    (run_copy / source).unlink()
    if content is not None:
        (run_copy / source).write_bytes(content)
    files = files_of(run_copy)
    assert str(run_copy / source) in refused(step, run_copy, "--redo")
    assert files_of(run_copy) == files


# Training


def test_a_loss_that_diverges(refused: Callable[..., str], tiny: list[str], tmp_path: Path) -> None:
    message = refused("run", *tiny, "--learning-rate", 1e30, "--out", tmp_path / "run")
    assert "--learning-rate" in message
    assert "1e+30" in message

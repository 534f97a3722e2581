"""A run whose images are streamed is the run whose images are in memory, stopped and resumed or not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Fingerprint = Callable[[Path], dict[str, object]]
Differing = Callable[[dict[str, object], dict[str, object]], list[str]]


def test_streamed_images_give_the_same_bytes(
    warm_cli: Any, tiny: list[str], tiny_run: Path, tmp_path: Path, fingerprint: Fingerprint, differing: Differing
) -> None:
    done = warm_cli("run", *tiny, "--image-memory", "stream", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert differing(fingerprint(tiny_run), fingerprint(tmp_path / "run")) == []


def test_a_streamed_run_that_was_killed_goes_on_exactly_and_may_change_where_its_images_are(
    warm_cli: Any, tiny: list[str], tiny_run: Path, tmp_path: Path, fingerprint: Fingerprint, differing: Differing
) -> None:
    killed = warm_cli(
        "run", *tiny, "--checkpoint-minutes", 0, "--image-memory", "stream", "--out", tmp_path / "run",
        die_at=("open", "lfs-00000004", 1),
    )  # fmt: skip
    assert killed.returncode == -9
    killed = warm_cli("resume", tmp_path / "run", die_at=("open", "end-00000004", 1))
    assert killed.returncode == -9
    done = warm_cli("resume", tmp_path / "run", "--image-memory", "device")
    assert done.returncode == 0, done.stderr
    assert differing(fingerprint(tiny_run), fingerprint(tmp_path / "run")) == []


def test_an_unknown_place_for_images_is_an_error(warm_cli: Any, tmp_path: Path) -> None:
    done = warm_cli("run", "--image-memory", "disk", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "--image-memory 'disk': choose auto or device or stream" in done.stderr
    assert not (tmp_path / "run").exists()

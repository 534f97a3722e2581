"""A run that is asked to stop, by a signal, a closed terminal or its time, leaves a checkpoint to go on from."""

import json
import os
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class Terminal:
    """A command on a terminal of its own, with what is drawn there, until the terminal is closed."""

    def __init__(self, words: list[object], folder: Path) -> None:
        fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
        self.screen, theirs = os.openpty()
        self.drawn = b""

        def on_that_terminal() -> None:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may have been started by nohup
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        self.command = subprocess.Popen(
            [sys.executable, "-m", "dpssl", *map(str, words)],
            **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
            cwd=folder,
            start_new_session=True,
            preexec_fn=on_that_terminal,
        )
        os.close(theirs)

    def shows(self, text: bytes) -> bool:
        """Whether it has drawn this; what is drawn has to be read, lest the command waits for somebody to see it."""
        if select.select([self.screen], [], [], 0)[0]:
            self.drawn += os.read(self.screen, 4096)
        return text in self.drawn

    @property
    def stderr(self) -> str:
        return self.drawn.decode(errors="replace")

    def close(self) -> int:
        """Close it; returns how the command ends."""
        os.close(self.screen)
        return self.command.wait(60)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*words: object) -> Terminal:
        opened.append(Terminal(list(words), tmp_path))
        return opened[-1]

    yield open_one
    for one in opened:
        one.command.kill()
        one.command.wait()


@pytest.mark.parametrize(("stage", "endless"), [("mcl", "--mcl-max-steps"), ("end", "--end-steps")])
def test_sigterm_stops_with_a_checkpoint(
    stage: str, endless: str, warm_cli: Any, tiny: list[str], tmp_path: Path, wait_until: Any
) -> None:
    folder = tmp_path / "run"
    log = folder / "metrics.jsonl"
    command = warm_cli.start("run", *tiny, "--mcl-tolerance", 0, endless, 1_000_000, "--out", folder)
    wait_until(lambda: log.exists() and f'"stage": "{stage}"' in log.read_text(), command)
    stopped = command.send(signal.SIGTERM)
    assert stopped.returncode == 143
    assert f"dpssl resume {folder}" in stopped.stderr

    steps = [line["step"] for line in map(json.loads, log.read_text().splitlines()) if line["stage"] == stage]
    assert [path.name for path in (folder / "checkpoint").glob(f"{stage}-*")] == [f"{stage}-{steps[-1]:08d}"]
    resumed = warm_cli("resume", folder, "--max-minutes", 1e-6)
    assert resumed.returncode == 0, resumed.stderr
    lines = list(map(json.loads, log.read_text().splitlines()))
    assert [line["step"] for line in lines if line["stage"] == stage] == [*steps, steps[-1] + 2]


def test_a_closed_terminal_leaves_a_checkpoint(
    tiny: list[str], tmp_path: Path, terminal: Callable[..., Terminal], wait_until: Any
) -> None:
    folder = tmp_path / "run"
    log = folder / "metrics.jsonl"
    run = terminal("run", *tiny, "--steps", "1000000", "--out", folder)

    def has_begun() -> bool:
        run.shows(b"")
        return log.exists() and '"stage": "lfs"' in log.read_text()

    wait_until(has_begun, run)
    assert run.close() == 128 + signal.SIGHUP
    steps = [line["step"] for line in map(json.loads, log.read_text().splitlines()) if line["stage"] == "lfs"]
    assert [path.name for path in (folder / "checkpoint").glob("lfs-*")] == [f"lfs-{steps[-1]:08d}"]


def test_a_closed_terminal_leaves_checkpoints_of_the_papers_cells(
    tmp_path: Path, terminal: Callable[..., Terminal], wait_until: Any
) -> None:
    """The runner tells what it does on the terminal, which is not there any more."""
    few = ("--scale", "small", "--steps", 100_000, "--seeds", 1, "--threads", 1, "--device", "cpu")
    runner = terminal("paper", "table3", *few, "--cells", "method=fixmatch")

    def has_begun() -> bool:
        logs = list((tmp_path / "runs" / "cells").glob("*/metrics.jsonl"))
        return runner.shows(b": started, ") and bool(logs) and '"stage": "fit"' in logs[0].read_text()

    wait_until(has_begun, runner)
    assert runner.close() == 128 + signal.SIGHUP
    assert len(list((tmp_path / "runs" / "cells").glob("*/checkpoint/fit-*"))) == 1
    assert list((tmp_path / "results" / "cells").glob("*.json")) == [], "cut off, not failed"


def test_sigterm_during_step_2_stops_before_step_3(
    monkeypatch: pytest.MonkeyPatch, begun: Callable[..., Path], warm_cli: Any, assert_same: Callable[[Path], None]
) -> None:
    """Step 2 has no windows, so the request waits for its end; then it must not be forgotten."""
    from dpssl import cli, pipeline

    folder = begun("soft_labels.npz")
    fit = pipeline.LabelModel.fit

    def fit_and_be_stopped(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return fit(*args, **kwargs)

    before = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), warnings.showwarning]
    monkeypatch.setattr(pipeline.LabelModel, "fit", fit_and_be_stopped)
    assert cli.main(["resume", str(folder)]) == 143
    assert [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), warnings.showwarning] == before
    assert (folder / "soft_labels.npz").exists()
    assert not (folder / "end_model.safetensors").exists()
    assert warm_cli("resume", folder).returncode == 0
    assert_same(folder)


def test_out_of_time_is_no_failure_and_can_be_resumed(
    warm_cli: Any, tiny: list[str], tmp_path: Path, assert_same: Callable[[Path], None]
) -> None:
    folder = tmp_path / "run"
    stopped = warm_cli("run", *tiny, "--max-minutes", 1e-6, "--out", folder)
    assert stopped.returncode == 0
    assert f"dpssl resume {folder}" in stopped.stderr
    assert [path.name for path in (folder / "checkpoint").iterdir()] == ["mcl-00000002"]
    resumed = warm_cli("resume", folder, "--max-minutes", 0)
    assert resumed.returncode == 0, resumed.stderr
    assert_same(folder)

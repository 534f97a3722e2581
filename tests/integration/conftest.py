"""A tiny run, and a warm command line: a process that has imported everything forks a child for every command.

Importing torch costs seconds and a tiny run less than one, so only a few tests start Python anew. A child is a process
of its own all the same: it can be killed, it exits with a status, and no test shares its memory.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GIVE_UP_AFTER = 120  # seconds in which a sign of a command appears unless the program hangs

# `die_at` is an audit event, a text and a count: the child kills itself as it is about to do that for the n-th time.
WARM_SERVER = """
import json, os, resource, signal, sys, traceback
import sklearn.datasets
import dpssl.cli, dpssl.label_votes, dpssl.pipeline

def die_at(event, text, count):
    seen = 0
    def watch(now, arguments):
        nonlocal seen
        if now == event and any(text in str(argument) for argument in arguments):
            seen += 1
            if seen == count:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(watch)

for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(job["cwd"])
        for stream in (1, 2):
            os.dup2(os.open(job["output"] + str(stream), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        if job["die_at"]:
            die_at(*job["die_at"])
        if job["largest_file"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest_file"], job["largest_file"]))
        status = 1
        try:
            status = dpssl.cli.main(job["args"])
        except SystemExit as asked:
            status = asked.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)  # taking down the interpreter would cost more than most commands
    print(child, flush=True)
    sys.stdin.readline()  # until then an ended child stays a zombie, so that its id names no other process
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass
class Command:
    """A command that was started; `wait` for it before starting another."""

    cli: "WarmCLI"
    pid: int
    output: Path
    returncode: int | None = None

    def wait(self) -> "Command":
        try:
            self.returncode = int(self.cli.answer("wait"))
        except BaseException:  # out of time: the others go on, with another server
            os.kill(self.pid, signal.SIGKILL)
            self.cli.close()
            raise
        return self

    def send(self, number: signal.Signals) -> "Command":
        os.kill(self.pid, number)
        return self.wait()

    @property
    def stdout(self) -> str:
        return self._written(1)

    @property
    def stderr(self) -> str:
        return self._written(2)

    def _written(self, stream: int) -> str:
        path = Path(f"{self.output}{stream}")
        return path.read_text(encoding="utf-8") if path.exists() else ""  # a command that has only just been started


class WarmCLI:
    """`warm_cli("run", "--seed", 1, cwd=folder)` runs a command; `warm_cli.start(...)` leaves it running."""

    def __init__(self, outputs: Path) -> None:
        self.outputs, self.count = outputs, 0
        self._server: subprocess.Popen[str] | None = None

    def start(
        self,
        *args: object,
        cwd: Path | None = None,
        die_at: tuple[str, str, int] | None = None,
        largest_file: int | None = None,
    ) -> Command:
        self.count += 1
        job: dict[str, Any] = {
            "args": list(map(str, args)),
            "cwd": str(cwd or self.outputs),
            "output": str(self.outputs / f"command-{self.count}."),
            "die_at": die_at,
            "largest_file": largest_file,
        }
        return Command(self, int(self.answer(json.dumps(job))), Path(job["output"]))

    def __call__(self, *args: object, **options: Any) -> Command:
        return self.start(*args, **options).wait()

    def answer(self, line: str) -> str:
        if self._server is None:
            words, pipe = [sys.executable, "-c", WARM_SERVER], subprocess.PIPE
            self._server = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self._server.stdin.write(line + "\n")
        self._server.stdin.flush()
        return self._server.stdout.readline()

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.communicate()
            self._server = None


@pytest.fixture(scope="session")
def warm_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmCLI]:
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    cli = WarmCLI(tmp_path_factory.mktemp("commands"))
    yield cli
    cli.close()


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """Flags of a run of a second: three checkpoints in step 1's second phase, two in its first and in step 3."""
    settings: dict[str, object] = {
        "n-lfs": 6, "mcl-min-steps": 2, "mcl-max-steps": 4, "steps": 6, "batch-size": 10, "unlabeled-ratio": 1,
        "end-steps": 4, "end-batch-size": 10, "end-unlabeled-ratio": 1, "window": 2, "mcl-window": 2, "threads": 1,
        "device": "cpu", "report": "false",
    }  # fmt: skip
    return [text for name, value in settings.items() for text in (f"--{name}", str(value))]


@pytest.fixture(scope="session")
def tiny_fit() -> list[str]:
    """Those of `tiny` that another system has, with as many steps."""
    settings = {"steps": 6, "batch-size": 10, "unlabeled-ratio": 1, "window": 2, "threads": 1, "device": "cpu"}
    return [text for name, value in settings.items() for text in (f"--{name}", str(value))] + ["--report", "false"]


@pytest.fixture(scope="session")
def tiny_run(warm_cli: WarmCLI, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny run on digits that nothing disturbed. Tests that write to it take a copy."""
    folder = tmp_path_factory.mktemp("tiny") / "run"
    done = warm_cli("run", *tiny, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def fingerprint() -> Callable[[Path], dict[str, object]]:
    """What two equal runs have in common: the bytes of each step's result, and the log but for the minutes."""

    def of(folder: Path) -> dict[str, object]:
        results = ("split.json", "votes.npz", "lf_model.safetensors", "soft_labels.npz", "soft_labels.csv")
        content: dict[str, object] = {
            name: (folder / name).read_bytes() for name in (*results, "embeddings.npz", "end_model.safetensors")
        }
        lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        content["metrics.jsonl"] = [{key: line[key] for key in line if key != "minutes"} for line in lines]
        return content

    return of


@pytest.fixture(scope="session")
def differing() -> Callable[[Mapping[str, object], Mapping[str, object]], list[str]]:
    """Names of the files in which two fingerprints differ: a short message where bytes would fill the screen."""
    return lambda one, other: [name for name in one if one[name] != other[name]]


@pytest.fixture
def assert_same(tiny_run: Path, fingerprint: Callable[..., Any], differing: Callable[..., Any]) -> Callable[..., None]:
    def check(folder: Path) -> None:
        assert differing(fingerprint(folder), fingerprint(tiny_run)) == []
        assert list((folder / "checkpoint").glob("*")) == []
        summary, expected = (json.loads((path / "summary.json").read_text()) for path in (folder, tiny_run))
        timed = {"minutes", "minutes_per_step"}
        assert {key: summary[key] for key in summary.keys() - timed} == {
            key: expected[key] for key in expected.keys() - timed
        }

    return check


@pytest.fixture
def begun(warm_cli: Any, tiny: list[str], tmp_path: Path) -> Callable[..., Path]:
    """`begun(text, count)`: a run that was killed as it was about to write that checkpoint or file."""

    def begin(text: str, count: int = 1, event: str = "os.rename", command: str = "run") -> Path:
        folder = tmp_path / "run"
        killed = warm_cli(
            command, *tiny, "--checkpoint-minutes", 0, "--out", folder, die_at=(event, text, count)
        )  # fmt: skip
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        return folder

    return begin


@pytest.fixture(scope="session")
def wait_until() -> Callable[[Callable[[], bool], Any], None]:
    """`wait_until(seen, command)`: until there is that sign of a command that runs."""

    def wait(seen: Callable[[], bool], command: Any) -> None:
        give_up = time.monotonic() + GIVE_UP_AFTER
        while not seen():
            assert time.monotonic() < give_up, command.stderr
            time.sleep(0.0005)

    return wait


@pytest.fixture
def own_images(tmp_path: Path) -> Callable[..., Path]:
    """`own_images(labels=...)`: an .npz of 40 of the digits 0, 1 and 2, two of each labelled, with arrays replaced."""
    from sklearn.datasets import load_digits

    def make(**arrays: np.ndarray) -> Path:
        images, truth = load_digits(n_class=3, return_X_y=True)
        labels = np.where(np.arange(40) < 6, truth[:40], -1)
        content = {"images": (images[:40].reshape(-1, 8, 8) * 15).astype(np.uint8), "labels": labels}
        path = tmp_path / "own.npz"
        np.savez(path, **{**content, **arrays})
        return path

    return make

"""Two processes that train together, over gloo on the CPU, against one: the same run up to rounding, written once.

A process that has imported everything forks them, with the variables that torchrun would set.
"""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file

SERVER = """
import json, os, signal, sys, traceback
import sklearn.datasets, torch
import dpssl.cli, dpssl.pipeline
from dpssl.data.batches import ImageBank
from dpssl.labeling import train
from dpssl.training.watch import Watch

def compute_in_double():
    torch.set_default_dtype(torch.float64)
    ImageBank.network_input = lambda self, images: (images.double() - self.mean) / self.std
    objective = train.SemiSupervised
    train.SemiSupervised = lambda network, settings, balance: objective(network, settings, balance.double())

def die_after(n_windows):
    after_window, seen = Watch.after_window, 0
    def dying(self, *arguments):
        nonlocal seen
        seen += 1
        if seen == n_windows:
            os.kill(os.getpid(), signal.SIGKILL)
        after_window(self, *arguments)
    Watch.after_window = dying

def be(rank, job):
    for stream in (1, 2):
        os.dup2(os.open(f"{job['output']}.{rank}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.environ.update(job["env"], RANK=str(rank), LOCAL_RANK=str(rank))
    if rank == 1 and job["second_dies_after"]:
        die_after(job["second_dies_after"])
    if job["double"]:
        compute_in_double()
    status = 1
    try:
        status = dpssl.cli.main(job["args"])
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(status)

for line in sys.stdin:
    job = json.loads(line)
    children = []
    for rank in range(job["n_processes"]):
        children.append(os.fork())
        if children[-1] == 0:
            be(rank, job)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""


class Ended(NamedTuple):
    """What processes left: exit status, standard output and standard error of each."""

    status: list[int]
    stdout: list[str]
    stderr: list[str]


Together = Callable[..., Ended]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    """`together("run", "--seed", 1)`: two processes of the same command, until both have ended.

    `double` computes in float64, where rounding cannot hide a mistake nor turn a pseudo-label.
    """
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    outputs = tmp_path_factory.mktemp("together")
    count = 0
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:

        def run(*args: object, n_processes: int = 2, second_dies_after: int = 0, double: bool = False) -> Ended:
            nonlocal count
            count += 1
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            output = outputs / str(count)
            job: dict[str, Any] = {
                "args": list(map(str, args)),
                "output": str(output),
                "n_processes": n_processes,
                "second_dies_after": second_dies_after,
                "double": double,
                "env": {
                    "TORCHELASTIC_RUN_ID": "test", "WORLD_SIZE": str(n_processes),
                    "LOCAL_WORLD_SIZE": str(n_processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                },
            }  # fmt: skip
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            status = json.loads(server.stdout.readline())
            texts = [
                [Path(f"{output}.{rank}.{stream}").read_text() for rank in range(n_processes)] for stream in (1, 2)
            ]
            return Ended(status, *texts)

        yield run
        server.stdin.close()


@pytest.fixture(scope="module")
def flags(tiny: list[str]) -> list[str]:
    return [*tiny, "--alignment", "true"]


@pytest.fixture(scope="module")
def pair_run(together: Together, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    folder = tmp_path_factory.mktemp("pair") / "run"
    return folder, together("run", *flags, "--out", folder)


def test_two_processes_train_the_network_of_one(
    pair_run: tuple[Path, Ended], warm_cli: Any, flags: list[str], tmp_path: Path
) -> None:
    pair, ended = pair_run
    assert ended.status == [0, 0], ended.stderr
    alone = tmp_path / "alone"
    assert warm_cli("run", *flags, "--out", alone).returncode == 0
    for name in ("lf_model.safetensors", "end_model.safetensors"):
        one, two = load_file(alone / name), load_file(pair / name)
        for key in one:
            np.testing.assert_allclose(two[key], one[key], rtol=2e-4, atol=2e-5, err_msg=f"{name} {key}")
    for name, keys in {"votes.npz": ("votes", "confidence"), "embeddings.npz": ("embeddings",)}.items():
        one, two = np.load(alone / name), np.load(pair / name)
        for key in keys:
            same = np.isclose(two[key].astype(float), one[key].astype(float), rtol=1e-2, atol=1e-2)
            assert same.mean() > 0.999, (name, key)  # a tie may fall the other way


WARM = ["--warm-steps", 3, "--warm-batch-size", 16]
CONSENSUS = ["--pseudo-labels", "consensus", "--curriculum-threshold", "false"]
BYOL = [*WARM, "--warm-method", "byol", *CONSENSUS, "--propagation-steps", 3]
SUREST = [*CONSENSUS, "--surest-first", 1, "--heads-first", 1]


APART, LEFT_OUT = ["--joint-forward", "false"], ["--weak-gradient", "false"]


@pytest.mark.parametrize("more", [[], APART, LEFT_OUT, WARM, BYOL, SUREST])
def test_in_float64_two_processes_and_one_agree_to_the_last_digits(
    together: Together, flags: list[str], tmp_path: Path, more: list[object]
) -> None:
    """Every pseudo-label counts here."""
    found = []
    for n_processes in (1, 2):
        run = tmp_path / str(n_processes)
        ended = together(
            "lfs", *flags, "--confidence-threshold", 0.2, *more, "--out", run, n_processes=n_processes, double=True
        )  # fmt: skip
        assert set(ended.status) == {0}, ended.stderr
        found.append(load_file(run / "lf_model.safetensors"))
    for name, alone in found[0].items():
        np.testing.assert_allclose(found[1][name], alone, rtol=1e-9, atol=1e-11, err_msg=name)


def test_a_run_may_go_on_with_another_number_of_processes(
    together: Together, flags: list[str], pair_run: tuple[Path, Ended], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert together("run", *flags, "--max-minutes", 1e-5, "--out", run).status == [0, 0]
    done = together("resume", run, "--max-minutes", 0, n_processes=1)
    assert done.status == [0], done.stderr
    one, two = (load_file(folder / "lf_model.safetensors") for folder in (run, pair_run[0]))
    np.testing.assert_allclose(one["heads.weight"], two["heads.weight"], rtol=2e-4, atol=2e-5)


def test_the_run_folder_is_written_once(pair_run: tuple[Path, Ended], tiny_run: Path) -> None:
    pair, ended = pair_run
    names, steps = [], []
    for folder in (pair, tiny_run):
        names.append({path.name for path in folder.iterdir()} - {"checkpoint"})
        lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        steps.append([(line["stage"], line["step"]) for line in lines])
    assert names[0] == names[1]
    assert steps[0] == steps[1]
    assert "annotation accuracy" in ended.stdout[0]
    assert "Step 3 of 3" in ended.stderr[0]
    assert (ended.stdout[1], ended.stderr[1]) == ("", "")


def test_a_process_that_dies_ends_the_other_and_the_run_goes_on_exactly(
    together: Together,
    flags: list[str],
    pair_run: tuple[Path, Ended],
    tmp_path: Path,
    fingerprint: Callable[[Path], dict[str, object]],
    differing: Callable[[dict[str, object], dict[str, object]], list[str]],
) -> None:
    run = tmp_path / "run"
    killed = together("run", *flags, "--checkpoint-minutes", 0, "--out", run, second_dies_after=4)
    assert killed.status == [2, -9]
    assert re.search(r"dpssl run: another process of this run ended or cannot be reached \(.*\); .*`dpssl resume`",
                     killed.stderr[0]), killed.stderr[0]  # fmt: skip
    assert "Traceback" not in killed.stderr[0]
    stopped = together("resume", run, "--max-minutes", 1e-5)
    assert stopped.status == [0, 0], stopped.stderr
    assert "stopped; continue with: dpssl resume" in stopped.stderr[0]
    done = together("resume", run, "--max-minutes", 0)
    assert done.status == [0, 0], done.stderr
    assert differing(fingerprint(pair_run[0]), fingerprint(run)) == []


def test_a_batch_that_cannot_be_shared(together: Together, tiny: list[str], tmp_path: Path) -> None:
    ended = together("run", *tiny, "--batch-size", 9, "--out", tmp_path / "run")
    assert ended.status == [2, 2]
    assert "dpssl run: --batch-size: a batch of 9 cannot be shared evenly by 2 processes" in ended.stderr[0]


def test_what_the_first_process_refuses_is_said_once(together: Together, tiny: list[str], tiny_run: Path) -> None:
    ended = together("run", *tiny, "--out", tiny_run)
    assert ended.status == [2, 2]
    assert "is not empty, and a run is never overwritten" in ended.stderr[0]
    assert ended.stderr[1] == ""


def test_only_training_takes_several_processes(together: Together, tiny_run: Path) -> None:
    ended = together("evaluate", tiny_run)
    assert ended.status == [2, 2]
    assert "torchrun started 2 processes, which only run, lfs, train, resume use; run it alone" in ended.stderr[0]

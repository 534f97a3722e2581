"""The runner, over workers that train nothing."""

import dataclasses
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dpssl.errors import RunFolderError, TrainingError
from dpssl.paper import runner
from dpssl.paper.cells import Cell
from dpssl.paper.runner import Outcome, Place, run_cells
from dpssl.paper.worker import Job
from dpssl.run_folder import RunFolder

# A worker that notes that it ran, then does as it is told: writes a result, fails, dies, stays after its result, waits,
# takes its time or for ever to stop, or says it was cut off.
WORKER = """
import os, shutil, signal, sys, time
behaviour, source, target, journal = sys.argv[1:]

def note(word):
    with open(journal, "a") as file:
        print(word, file=file)

def stop(*_):
    note("asked")
    if behaviour == "stuck":
        time.sleep(3600)
    if behaviour == "slow":
        time.sleep(0.5)
    note("saved")
    sys.exit(75)

signal.signal(signal.SIGTERM, stop)
note(os.path.basename(source))
if behaviour == "done":
    shutil.copy(source, target)
elif behaviour == "fail":
    print("first words"); sys.exit("no memory on the device")
elif behaviour == "die":
    os.kill(os.getpid(), signal.SIGKILL)
elif behaviour == "linger":
    shutil.copy(source, target)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pause()
elif behaviour in ("wait", "slow", "stuck"):
    while True:
        signal.pause()
else:
    sys.exit(75)
"""


class Stage:
    """Results in `place`, made by workers that behave as `behaviour` says by seed."""

    def __init__(self, folder: Path, template: Callable[..., Any], patch: pytest.MonkeyPatch) -> None:
        self.place = Place(str(folder / "results"), str(folder / "runs"))
        self.behaviour: dict[int, str] = {}
        self.said: list[str] = []
        self.asked: list[Job] = []
        self.journal = folder / "journal"

        def command(job: Job) -> list[str]:
            self.asked.append(job)
            source = template(job.cell).path(f"{job.cell.name}.json")
            target = Path(job.results) / source.name
            words = [self.behaviour.get(job.cell.seed, "done"), source, target, self.journal]
            return [sys.executable, "-S", "-c", WORKER, *map(str, words)]

        patch.setattr(runner, "worker_command", command)
        patch.setattr(runner, "POLL_SECONDS", 0.01)

    def run(self, cells: list[Cell], **changes: Any) -> Outcome:
        return run_cells(cells, dataclasses.replace(self.place, **changes), self.said.append)

    @property
    def ran(self) -> list[str]:
        """The results that workers were asked for."""
        return [word for word in self.noted if word.endswith(".json")]

    @property
    def noted(self) -> list[str]:
        return self.journal.read_text().split() if self.journal.exists() else []


@contextmanager
def handler_of(number: int, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.fixture
def stage(tmp_path: Path, write_done: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, write_done, monkeypatch)


def test_only_what_is_missing_runs(stage: Stage, cells: list[Cell]) -> None:
    assert len(stage.run(cells[:2]).results) == 2
    outcome = stage.run(cells)
    assert sorted(outcome.results) == sorted(cell.name for cell in cells)
    assert stage.ran == [f"{cell.name}.json" for cell in cells]
    assert "2 of 3 cells are done, 1 to run" in stage.said
    assert stage.said[-1] == f"[1/1] {cells[2].name}: annotation error 20.00 %, test error 10.00 %, 0.5 minutes"
    stage.run(cells)
    everything = "3 of 3 cells are done, 0 to run"
    assert (
        stage.said[-1] == f"{everything}; {stage.place.results} has them, another --results and --runs train them anew"
    )


def test_a_failed_cell_is_recorded_and_the_others_go_on(stage: Stage, cells: list[Cell]) -> None:
    stage.behaviour = {1: "fail", 2: "die"}
    outcome = stage.run(cells)
    assert outcome.failed == [cells[0].name, cells[1].name]
    assert outcome.results[cells[0].name].error == "exit status 1: no memory on the device"
    assert outcome.results[cells[1].name].error == "ended by SIGKILL"
    assert outcome.results[cells[2].name].error is None
    stage.behaviour = {}
    assert stage.run(cells).failed == []
    assert len(stage.ran) == 5  # those that failed were tried again, the other was not


def test_a_failure_of_the_end_model_leaves_the_labels_that_were_measured(stage: Stage, cells: list[Cell]) -> None:
    stage.run(cells[:1])
    path = Path(stage.place.results) / f"{cells[0].name}.json"
    document = json.loads(path.read_text())
    document["figures"]["test_accuracy"] = None
    path.write_text(json.dumps(document))
    stage.behaviour = {1: "fail"}
    outcome = stage.run(cells[:1])
    assert outcome.failed == [cells[0].name]
    assert outcome.results[cells[0].name].figures["annotation_accuracy"] == 0.8


def test_a_cell_that_is_cut_off_is_left_for_the_next_call(stage: Stage, cells: list[Cell]) -> None:
    stage.behaviour = {1: "stop"}
    outcome = stage.run(cells[:2])
    assert (outcome.left, outcome.failed) == ([cells[0].name], [])
    stage.behaviour = {}
    assert stage.run(cells[:2]).left == []
    assert stage.ran == [f"{cells[number].name}.json" for number in (0, 1, 0)]


def test_a_signal_stops_the_workers_and_begins_no_more(stage: Stage, cells: list[Cell]) -> None:
    stage.behaviour = {1: "wait", 2: "wait"}

    def signal_when_both_wait() -> None:
        while len(stage.ran) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=signal_when_both_wait, daemon=True)
    thread.start()
    outcome = stage.run(cells, jobs=2)
    thread.join()
    assert sorted(outcome.left) == [cell.name for cell in cells]
    assert (outcome.failed, outcome.received, len(stage.ran)) == ([], [signal.SIGTERM], 2)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_while_a_worker_is_being_started_reaches_it(
    stage: Stage, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.behaviour = {1: "wait"}
    start = runner.subprocess.Popen

    def started_and_interrupted(*words: Any, **options: Any) -> Any:
        process = start(*words, **options)
        while not stage.ran:  # until it has a handler
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(runner.subprocess, "Popen", started_and_interrupted)
    outcome = stage.run(cells)
    assert (outcome.left, outcome.failed) == ([cell.name for cell in cells], [])
    assert len(stage.ran) == 1


def test_a_closed_terminal_stops_them_unless_that_is_ignored(stage: Stage, cells: list[Cell]) -> None:
    def hang_up_at_the_next() -> threading.Thread:
        n_before = len(stage.ran)

        def hang_up() -> None:
            while len(stage.ran) == n_before:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGHUP)

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        return thread

    stage.behaviour = {1: "wait"}
    with handler_of(signal.SIGHUP, signal.SIG_DFL):  # tests that nohup or a service has started begin without one
        thread = hang_up_at_the_next()
        assert stage.run(cells[:2]).received == [signal.SIGHUP]
        thread.join()
    with handler_of(signal.SIGHUP, signal.SIG_IGN):  # as nohup does
        thread = hang_up_at_the_next()
        assert len(stage.run(cells[1:]).results) == 2
        thread.join()


@pytest.mark.parametrize(("behaviour", "number"), [("slow", signal.SIGHUP), ("stuck", signal.SIGTERM)])
def test_a_second_signal_does_not_wait_unless_a_terminal_hangs_up_twice(
    stage: Stage, cells: list[Cell], behaviour: str, number: int
) -> None:
    stage.behaviour = {1: behaviour}

    def signal_twice() -> None:
        for word in (f"{cells[0].name}.json", "asked"):
            while word not in stage.noted:
                time.sleep(0.01)
            os.kill(os.getpid(), number)

    with handler_of(signal.SIGHUP, signal.SIG_DFL):
        thread = threading.Thread(target=signal_twice, daemon=True)
        thread.start()
        outcome = stage.run(cells[:1])
        thread.join()
    assert (outcome.received, outcome.left) == ([number, number], [cells[0].name])
    assert ("saved" in stage.noted) == (behaviour == "slow")
    if behaviour == "slow":
        told = "stopping, with a checkpoint of every cell that runs; a second Ctrl-C does not wait for them"
        assert stage.said.count(told) == 1


def test_who_runs_cannot_be_noted_on_a_full_disk_and_the_cells_go_on(
    stage: Stage, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runner, "note_holders", no_space)
    stage.behaviour = {1: "fail"}
    outcome = stage.run(cells)
    assert outcome.failed == [cells[0].name]
    assert len(outcome.results) == 3


@pytest.mark.parametrize("line_that_fails", ["[1/3] digits-40_fixmatch_8-steps_seed-1", "2: started"])
def test_an_error_of_the_runner_leaves_no_worker_behind(stage: Stage, cells: list[Cell], line_that_fails: str) -> None:
    """Such as a line that nobody reads (`| head`), of a worker that has only just been started."""
    stage.behaviour = {1: "fail", 2: "wait"}

    def say(line: str) -> None:
        if line_that_fails in line:
            while len(stage.ran) < 2:
                time.sleep(0.01)
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_cells(cells, dataclasses.replace(stage.place, jobs=2), say)
    assert stage.noted[-1] == "saved"
    stage.behaviour = {}
    assert len(stage.run(cells).results) == 3  # nobody holds the folder any more


def test_what_an_earlier_attempt_printed_is_no_reason(stage: Stage, cells: list[Cell]) -> None:
    stage.behaviour = {1: "fail"}
    stage.run(cells[:1])
    stage.behaviour = {1: "die"}
    outcome = stage.run(cells[:1])
    assert outcome.results[cells[0].name].error == "ended by SIGKILL"


def test_a_signal_that_meets_a_worker_after_its_result_leaves_nothing(stage: Stage, cells: list[Cell]) -> None:
    stage.behaviour = {1: "linger"}
    result = Path(stage.place.results) / f"{cells[0].name}.json"

    def signal_when_written() -> None:
        while not result.exists():
            time.sleep(0.01)
        time.sleep(0.2)  # until the worker has no handler any more
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=signal_when_written, daemon=True)
    thread.start()
    outcome = stage.run(cells[:2])
    thread.join()
    assert (outcome.left, outcome.failed) == ([cells[1].name], [])
    assert "annotation error 20.00 %" in stage.said[-1]


def test_a_result_that_does_not_count_when_its_worker_ends_is_a_failure(
    stage: Stage, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of the cell may have changed while it ran."""
    monkeypatch.setattr("dpssl.paper.results._changed_setting", lambda *_: "was made with other settings")
    outcome = stage.run(cells[:1])
    assert outcome.failed == [cells[0].name]
    assert "was made with other settings; not counted" in stage.said[-1]


def test_no_cell_begins_when_the_minutes_are_over(stage: Stage, cells: list[Cell]) -> None:
    outcome = stage.run(cells, max_minutes=1e-9)
    assert outcome.left == [cell.name for cell in cells]
    assert stage.ran == []
    stage.run(cells, max_minutes=5)
    assert all(0 < job.max_minutes <= 5 for job in stage.asked)


def test_several_at_once_run_each_cell_once(stage: Stage, cells: list[Cell]) -> None:
    outcome = stage.run(cells, jobs=3)
    assert len(outcome.results) == 3
    assert sorted(stage.ran) == sorted(f"{cell.name}.json" for cell in cells)


def test_a_damaged_result_is_named_and_run_again(stage: Stage, cells: list[Cell]) -> None:
    stage.run(cells[:1])
    (Path(stage.place.results) / f"{cells[0].name}.json").write_text("{")
    outcome = stage.run(cells[:1])
    assert any("is damaged, no JSON document; not counted, so it is run again" in line for line in stage.said)
    assert outcome.results[cells[0].name].error is None
    assert outcome.problems == [], "it is no problem any more"


def test_a_results_folder_has_one_runner_at_a_time(stage: Stage, cells: list[Cell]) -> None:
    stage.run(cells[:1])
    lock = RunFolder(Path(stage.place.results)).lock()
    assert lock is not None
    with lock, pytest.raises(RunFolderError, match=r"is writing to .*results; wait for it or stop it"):
        stage.run(cells)
    assert len(stage.ran) == 1
    assert len(stage.run(cells).results) == 3


def test_folders_that_cannot_be_made_are_named(stage: Stage, cells: list[Cell], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"--results .*file: cannot be made a folder"):
        stage.run(cells, results=str(tmp_path / "file"))
    with pytest.raises(RunFolderError, match=r"--runs .*file: cannot be made a folder"):
        stage.run(cells, runs=str(tmp_path / "file"))


def test_a_job_survives_json(cells: list[Cell]) -> None:
    job = Job(cells[0], "runs", "results", "cpu", 1, 2.5)
    assert Job.from_json(job.to_json()) == job


def test_a_result_that_cannot_be_written_is_a_failure_and_the_others_go_on(stage: Stage, cells: list[Cell]) -> None:
    stage.behaviour[1] = "fail"
    blocked = Path(stage.place.results) / f"{cells[0].name}.json"
    blocked.mkdir(parents=True)
    outcome = stage.run(cells)
    assert outcome.failed == [cells[0].name]
    assert set(outcome.results) == {cell.name for cell in cells[1:]}
    assert any("no memory on the device" in line and str(blocked) in line for line in stage.said)


def test_a_set_that_is_not_there_is_told_of_once(
    stage: Stage, cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPSSL_DATA", str(tmp_path))
    monkeypatch.setattr("dpssl.data.published.read.cache_folder", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    elsewhere = [dataclasses.replace(cell, data="stl10") for cell in cells]
    outcome = stage.run([*elsewhere, *cells])
    assert outcome.failed == [cell.name for cell in elsewhere]
    assert set(outcome.results) == {cell.name for cell in cells}
    told = [line for line in stage.said if "stl10" in line]
    assert len(told) == 1
    assert told[0].startswith(f"{len(cells)} cells cannot run: --data stl10: STL-10 is in none of")
    assert all(job.cell.data != "stl10" for job in stage.asked)


def test_a_device_that_is_not_there_is_refused_once_and_only_if_something_is_to_run(
    stage: Stage, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(TrainingError, match="--device cuda: torch sees no GPU here"):
        stage.run(cells, device="cuda")
    assert stage.ran == []
    stage.run(cells)
    assert len(stage.run(cells, device="cuda").results) == 3

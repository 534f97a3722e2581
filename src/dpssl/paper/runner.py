"""Running cells: what is missing, several at once where asked, each in a process of its own.

A cell that fails, crashes or is killed for memory leaves its error in its result file, and the others go on. A cell
that is cut off goes on from its checkpoint the next time. One runner at a time works on a results folder: it is locked,
and workers inherit the lock, so that those of a runner that was killed keep others out until they end.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from dpssl.config import settings_that_matter
from dpssl.data.published.catalog import PUBLISHED
from dpssl.data.published.read import find_published
from dpssl.disk import note_holders
from dpssl.errors import InputError, RunFolderError
from dpssl.paper.cells import Cell, folder_name
from dpssl.paper.results import Result, made_folder, read_results, write_result
from dpssl.paper.worker import STOPPED, Job
from dpssl.run_folder import RunFolder
from dpssl.stop_signals import HANG_UP, heeded

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Place:
    """Where results and run folders are, and on what a cell runs."""

    results: str
    runs: str
    device: str = "auto"
    threads: int = 0  # 0 = as the preset says
    jobs: int = 1
    max_minutes: float = 0.0  # of this call; 0 = no limit


@dataclass
class Outcome:
    """What became of the cells of a call."""

    results: dict[str, Result] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # files that do not count
    failed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # cut off or not begun
    received: list[int] = field(default_factory=list)  # signals


@dataclass
class _Worker:
    cell: Cell
    process: "subprocess.Popen[bytes]"
    log: Path
    log_from: int  # bytes that earlier attempts left there


def run_cells(cells: Sequence[Cell], place: Place, say: Callable[[str], None]) -> Outcome:
    """Run every cell that has no result; returns what is there now."""
    folder = made_folder(place.results, "--results")
    made_folder(place.runs, "--runs")
    lock = folder.lock()
    outcome = Outcome()
    try:
        found, problems = read_results(folder, cells)
        for problem in problems:
            say(f"note: {problem}, so it is run again")
        missing = [cell for cell in cells if cell.name not in found or not found[cell.name].has(cell)]
        to_run = _with_images(missing, say, outcome)
        n_done = len(cells) - len(missing)
        anew = "" if missing else f"; {place.results} has them, another --results and --runs train them anew"
        say(f"{n_done} of {len(cells)} cells are done, {len(to_run)} to run{anew}")
        if to_run:
            from dpssl.training.precision import pick_device  # it imports torch

            pick_device(place.device)  # refused once, not by every cell
        _Runner(place, lock, say, outcome, to_run).run()
        outcome.results, outcome.problems = read_results(folder, cells)
    finally:
        if lock is not None:
            with suppress(OSError):  # what could not be noted in it
                lock.close()
    return outcome


def _with_images(cells: list[Cell], say: Callable[[str], None], outcome: Outcome) -> list[Cell]:
    """The cells whose set is on this disk. Each set that is not is told of once, not by every one of its cells."""
    for data in dict.fromkeys(cell.data for cell in cells if cell.data in PUBLISHED):
        try:
            find_published(data)
        except InputError as problem:
            absent = [cell.name for cell in cells if cell.data == data]
            say(f"{len(absent)} cells cannot run: {problem}")
            outcome.failed += absent
    return [cell for cell in cells if cell.name not in outcome.failed]


class _Runner:
    def __init__(
        self, place: Place, lock: IO[str] | None, say: Callable[[str], None], outcome: Outcome, missing: list[Cell]
    ) -> None:
        self.place, self.lock, self.say, self.outcome = place, lock, say, outcome
        self.waiting, self.n_missing, self.n_ended = list(missing), len(missing), 0
        self.active: list[_Worker] = []
        self.started, self.told = time.monotonic(), False

    def run(self) -> None:
        with self._signals(), self._none_left_behind():
            while self.active or self._may_start():
                while len(self.active) < self.place.jobs and self._may_start():
                    worker = self._started(self.waiting.pop(0))
                    self.active.append(worker)
                    if self.outcome.received:  # while it was started
                        self._ask_to_stop(worker)
                    self._note_holders()
                    self.say(f"{worker.cell.name}: started, {worker.log}")
                time.sleep(POLL_SECONDS)
                self._say_what_a_signal_does()
                for worker in [worker for worker in self.active if worker.process.poll() is not None]:
                    self.active.remove(worker)
                    self._note_holders()
                    self._ended(worker)
        self.outcome.left += [cell.name for cell in self.waiting]

    def _say_what_a_signal_does(self) -> None:
        if self.outcome.received and self.active and not self.told:
            self.told = True
            self.say("stopping, with a checkpoint of every cell that runs; a second Ctrl-C does not wait for them")

    def _may_start(self) -> bool:
        return bool(self.waiting) and not self.outcome.received and self._minutes_left() > 0

    def _minutes_left(self) -> float:
        limit = self.place.max_minutes or float("inf")
        return limit - (time.monotonic() - self.started) / 60

    def _started(self, cell: Cell) -> _Worker:
        place = self.place
        left = self._minutes_left() if place.max_minutes else 0.0
        job = Job(cell, place.runs, place.results, place.device, place.threads, left)
        log = Path(place.runs) / f"{folder_name(cell)}.log"
        with log.open("ab") as output:  # after what it said before it was cut off
            log_from = output.tell()
            process = subprocess.Popen(
                worker_command(job),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=() if self.lock is None else (self.lock.fileno(),),
                start_new_session=True,  # Ctrl-C reaches the runner alone, which asks its workers to stop
            )
        return _Worker(cell, process, log, log_from)

    def _ended(self, worker: _Worker) -> None:
        name, status = worker.cell.name, worker.process.returncode
        folder = RunFolder(Path(self.place.results))
        found, problems = read_results(folder, [worker.cell])
        done = name in found and found[name].has(worker.cell)  # also if a signal met it after its last word
        if not done and (status == STOPPED or (status < 0 and self.outcome.received)):
            self.outcome.left.append(name)
            return self.say(f"{name}: cut off; the same command goes on with it")
        self.n_ended += 1
        count = f"[{self.n_ended}/{self.n_missing}]"
        if done:
            return self.say(f"{count} {name}: {_headline(found[name])}")
        error = problems[0] if status == 0 and problems else _last_words(worker, status)
        measured = name in found and found[name].error is None  # labels, which stay where a later step fails
        if not measured:
            try:
                write_result(folder, worker.cell, settings_that_matter(worker.cell.config()), {}, error=error)
            except RunFolderError as problem:  # as a worker's own did: the others go on
                error = f"{error}; {problem}"
        self.outcome.failed.append(name)
        self.say(f"{count} {name}: failed ({error}); see {worker.log}")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and a closed terminal ask every worker to stop, with a checkpoint."""

        def stop(number: int, _: object) -> None:
            self.outcome.received.append(number)
            for worker in self.active:
                self._ask_to_stop(worker)

        with heeded(stop):
            yield

    def _ask_to_stop(self, worker: _Worker) -> None:
        """After a second signal without waiting for its checkpoint; but a terminal that is closed may signal twice."""
        if sum(number != HANG_UP for number in self.outcome.received) > 1:
            worker.process.kill()
        else:
            worker.process.terminate()

    @contextmanager
    def _none_left_behind(self) -> Iterator[None]:
        """An error of the runner ends its workers too, with a checkpoint each."""
        try:
            yield
        finally:
            for worker in self.active:
                worker.process.terminate()
            for worker in self.active:
                worker.process.wait()

    def _note_holders(self) -> None:
        """Who keeps the results folder locked, should this process be killed. A full disk is no reason to end."""
        if self.lock is not None:
            with suppress(OSError):
                note_holders(self.lock, [os.getpid(), *(worker.process.pid for worker in self.active)])


def worker_command(job: Job) -> list[str]:
    """How a worker is started."""
    return [sys.executable, "-m", "dpssl.paper.worker", job.to_json()]


def _headline(result: Result) -> str:
    figures: dict[str, Any] = result.figures
    parts = [
        f"{title} error {100 * (1 - figures[name]):.2f} %"
        for title, name in (("annotation", "annotation_accuracy"), ("test", "test_accuracy"))
        if figures.get(name) is not None
    ]
    return ", ".join([*parts, f"{result.minutes:.1f} minutes"])


def _last_words(worker: _Worker, status: int) -> str:
    """The last line that a failed worker printed; by which signal it was ended where it was."""
    printed = worker.log.read_bytes()[worker.log_from :].decode(errors="replace")
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    ended = f"ended by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return f"{ended}: {lines[-1]}" if lines else ended

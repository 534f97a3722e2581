"""One cell in a process of its own: train it or go on with it in its run folder, then write its result.

`python -m dpssl.paper.worker JOB`, with the job as JSON; `dpssl paper` starts it. It ends with status 0 when the
result is written and with STOPPED when it was asked to stop, or ran out of minutes, and can be gone on with.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpssl.config import DP_SSL, settings_that_matter, with_values
from dpssl.constants import THREADS_WAIT
from dpssl.errors import DPSSLError
from dpssl.paper.cells import Cell, folder_name
from dpssl.stop_signals import heeded

if TYPE_CHECKING:
    from dpssl.runs import Run

STOPPED, FAILED = 75, 1
COMMITS = "commits.json"  # in the run folder of a cell


@dataclass(frozen=True)
class Job:
    """What a worker is asked to do."""

    cell: Cell
    runs: str  # folder of the cells' run folders
    results: str
    device: str
    threads: int  # 0 = as the preset says
    max_minutes: float  # 0 = no limit

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        document = json.loads(text)
        return cls(**{**document, "cell": Cell.from_json(document["cell"])})


def main(text: str) -> int:
    """Do the job; returns the exit status."""
    for name, value in THREADS_WAIT.items():
        os.environ.setdefault(name, value)
    try:
        return _work(Job.from_json(text))
    except DPSSLError as problem:
        print(problem, file=sys.stderr)
        return FAILED


def _work(job: Job) -> int:
    from dpssl.paper.figures import cell_figures
    from dpssl.paper.results import made_folder, write_result
    from dpssl.runs import open_run, start_run, use_config
    from dpssl.training.watch import StopRequested

    cell, folder = job.cell, Path(job.runs) / folder_name(job.cell)
    here: dict[str, Any] = {"device": job.device, "max_minutes": job.max_minutes}
    if job.threads:
        here["threads"] = job.threads
    config = with_values(cell.config(), here)
    commit = _commit()  # before training: the tree may be at another when the run is done
    goes_on = _can_go_on(folder, cell)
    if goes_on:
        run = open_run(folder, progress=False)
        use_config(run, with_values(run.config, here))
    else:
        shutil.rmtree(folder, ignore_errors=True)
        run = start_run(config, str(folder), progress=False)
    with _open_until_done(run):
        commits = _note_commit(run, commit, goes_on)
        try:
            _train(cell, run)
        except StopRequested:
            return STOPPED
        figures = cell_figures(run)
    folder_of_results = made_folder(job.results, "--results")
    write_result(folder_of_results, cell, settings_that_matter(run.config), figures, commit=commits)
    return 0


def _can_go_on(folder: Path, cell: Cell) -> bool:
    """Whether a run of this cell was begun there. Its name tells all settings but the defaults of its method.

    A kill before config.toml, its first file, left nothing to resume.
    """
    from dpssl.baselines.registry import changed_setting
    from dpssl.config_file import CONFIG, read_config
    from dpssl.run_folder import RunFolder

    begun = RunFolder(folder)
    if not begun.has(CONFIG):
        return False
    noted = read_config(begun)[0].baseline.method_settings
    return not changed_setting(cell.method, noted, cell.method_settings)


@contextmanager
def _open_until_done(run: "Run") -> Iterator[None]:
    """Signals ask the run to stop with a checkpoint; its lock is let go at the end."""
    try:
        with heeded(lambda *_: run.stop()):
            yield
    finally:
        if run.lock is not None:
            run.lock.close()


def _train(cell: Cell, run: "Run") -> None:
    """Every step that the cell asks for and that is not done."""
    from dpssl.paper.oracle import resolve_votes_with_truth
    from dpssl.pipeline import resolve_votes, run_all, train_classifier, train_labeling_functions

    if cell.method != DP_SSL:
        return run_all(run)
    train_labeling_functions(run)
    if cell.uses_truth:
        resolve_votes_with_truth(run)
    else:
        resolve_votes(run)
    if cell.end_model:
        train_classifier(run)


def _note_commit(run: "Run", commit: str | None, goes_on: bool) -> str | None:
    """Every commit whose code has worked on the run, in order, this one the last; None where one is not known."""
    before: list[str | None] = [None] * goes_on
    if run.folder.has(COMMITS):
        before = run.folder.read_json(COMMITS)
    commits = list(dict.fromkeys([*before, commit]))
    run.folder.write_json(COMMITS, commits)
    return None if None in commits else ", ".join(map(str, commits))


def _commit() -> str | None:
    """The commit that the code is at, with a + where files differ from it; None where it is no checkout."""
    source = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(source), *words], capture_output=True, text=True, check=True).stdout

    try:
        return git("rev-parse", "HEAD").strip() + ("+" if git("status", "--porcelain", "--", ".").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""`dpssl paper` from the command line, and its worker on cells of a few steps."""

import dataclasses
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl.config import with_values
from dpssl.config_file import read_config, write_config
from dpssl.paper import worker
from dpssl.paper.cells import Cell, folder_name
from dpssl.paper.tables import table
from dpssl.paper.worker import Job
from dpssl.run_folder import RunFolder

FEW_STEPS = ("--scale", "small", "--steps", 4, "--seeds", 1, "--threads", 1, "--device", "cpu")
TINY = (
    ("n_lfs", 6), ("mcl_min_steps", 2), ("mcl_max_steps", 4), ("batch_size", 10), ("unlabeled_ratio", 1),
    ("end_batch_size", 10), ("end_unlabeled_ratio", 1), ("window", 1), ("mcl_window", 1),
)  # fmt: skip


def tiny_cell(**changes: Any) -> Cell:
    return dataclasses.replace(Cell("digits", "digits", 40, "dp-ssl", 1, 8, settings=TINY), **changes)


def work(cell: Cell, folder: Path, max_minutes: float = 0.0) -> int:
    return worker.main(Job(cell, str(folder / "runs"), str(folder / "cells"), "cpu", 1, max_minutes).to_json())


def result(cell: Cell, folder: Path) -> Any:
    return json.loads((folder / "cells" / f"{cell.name}.json").read_text(encoding="utf-8"))


def without_minutes(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if not name.startswith("minutes")}


def test_a_cell_that_is_cut_off_goes_on_to_the_same_figures(tmp_path: Path) -> None:
    cell = tiny_cell()
    assert work(cell, tmp_path / "whole") == 0
    assert work(cell, tmp_path / "cut", 1e-9) == worker.STOPPED
    assert not (tmp_path / "cut" / "cells").exists()
    assert (tmp_path / "cut" / "runs" / folder_name(cell) / "checkpoint").is_dir()
    assert work(cell, tmp_path / "cut") == 0
    whole, cut = result(cell, tmp_path / "whole"), result(cell, tmp_path / "cut")
    assert whole["commit"] == cut["commit"], "both by the same code"
    assert without_minutes(whole["figures"]) == without_minutes(cut["figures"])
    assert whole["config"]["n_lfs"] == 6
    assert whole["device"] == "cpu, 1 thread"
    assert set(whole["figures"]["label_models"]) == {"majority", "triplet", "paper", "paper-without-regularizer"}
    share = whole["figures"]["label_models"]["majority"]["annotation_accuracy"]
    assert share == pytest.approx(whole["figures"]["majority_vote_accuracy"])


def test_an_end_model_that_another_table_asks_for_is_trained_on_the_labels_that_are_there(tmp_path: Path) -> None:
    labels_alone, whole = tiny_cell(end_model=False), tiny_cell()
    assert work(labels_alone, tmp_path) == 0
    assert result(whole, tmp_path)["figures"]["test_accuracy"] is None
    votes = tmp_path / "runs" / folder_name(whole) / "votes.npz"
    written = votes.stat().st_mtime_ns
    assert work(whole, tmp_path) == 0
    assert result(whole, tmp_path)["figures"]["test_accuracy"] is not None
    assert votes.stat().st_mtime_ns == written


def test_the_oracle_differs_from_the_papers_label_model_by_its_labels_and_says_so(tmp_path: Path) -> None:
    honest, oracle = tiny_cell(variant="paper-label-model"), tiny_cell(variant="oracle-regularizer")
    for cell in (honest, oracle):
        assert work(cell, tmp_path) == 0
    assert (result(honest, tmp_path)["uses_truth"], result(oracle, tmp_path)["uses_truth"]) == (False, True)
    arrays = []
    for cell in (honest, oracle):
        run = tmp_path / "runs" / folder_name(cell)
        arrays.append((np.load(run / "votes.npz")["votes"], np.load(run / "soft_labels.npz")["soft_labels"]))
    assert (arrays[0][0] == arrays[1][0]).all()
    assert not np.allclose(arrays[0][1], arrays[1][1])
    assert json.loads((run / "oracle.json").read_text(encoding="utf-8"))["uses_truth"] is True


def test_a_result_names_every_commit_whose_code_worked_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, commits = tiny_cell(end_model=False), iter(("abc", "def+", "def+", None))
    monkeypatch.setattr(worker, "_commit", lambda: next(commits))
    assert work(cell, tmp_path, 1e-9) == worker.STOPPED
    for named in ("abc, def+", "abc, def+", None):
        assert work(cell, tmp_path) == 0
        assert result(cell, tmp_path)["commit"] == named


def test_a_worker_that_cannot_work_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert work(tiny_cell(data=str(tmp_path / "none.npz")), tmp_path) == worker.FAILED
    assert "none.npz" in capsys.readouterr().err


def test_a_runner_that_is_killed_keeps_others_out_until_its_worker_ends_and_loses_nothing(
    warm_cli: Any, wait_until: Any, tmp_path: Path
) -> None:
    command = ("paper", "table3", *FEW_STEPS, "--cells", "method=fixmatch")
    runner = warm_cli.start(*command, cwd=tmp_path)

    def written_locks() -> list[str]:
        texts = [lock.read_text().strip() for lock in (tmp_path / "runs" / "cells").glob("*/.lock")]
        return [text for text in texts if text]

    wait_until(lambda: bool(written_locks()), runner)
    worker_id = int(written_locks()[0])
    os.kill(worker_id, signal.SIGSTOP)  # it lives on, as it is, until the others were seen to wait for it
    runner.send(signal.SIGKILL)
    second = warm_cli(*command, cwd=tmp_path)
    assert second.returncode == 2
    assert re.search(rf"another dpssl \(pid .*\b{worker_id}\) is writing to results/cells; wait for it", second.stderr)
    os.kill(worker_id, signal.SIGKILL)
    for _ in range(50):  # until the kernel has let go of the lock
        third = warm_cli(*command, cwd=tmp_path)
        if third.returncode != 2:
            break
        time.sleep(0.1)
    assert third.returncode == 0, third.stderr
    assert "[1/1] digits-40_fixmatch_4-steps_seed-1: annotation error" in third.stderr
    assert "| FixMatch (RA): proxy-label accuracy |" in third.stdout
    again = warm_cli(*command, cwd=tmp_path)
    assert "1 of 1 cells are done, 0 to run" in again.stderr
    listed = warm_cli("paper", "table1", *FEW_STEPS, "--cells", "method=fixmatch,uda", "--list", cwd=tmp_path).stdout
    assert "digits-40_fixmatch_4-steps_seed-1: done\n" in listed
    assert "digits-40_uda_4-steps_seed-1: to run\n" in listed
    (result,) = (tmp_path / "results" / "cells").glob("*.json")
    result.unlink()
    listed = warm_cli("paper", "table1", *FEW_STEPS, "--cells", "method=fixmatch", "--list", cwd=tmp_path)
    assert "digits-40_fixmatch_4-steps_seed-1: begun\n" in listed.stdout, "its run folder is there"
    assert "0 of 2 cells are done" in listed.stderr


def test_a_folder_that_a_kill_left_half_made_is_made_again(warm_cli: Any, tmp_path: Path) -> None:
    command = ("paper", "table3", *FEW_STEPS, "--cells", "method=fixmatch")
    assert warm_cli(*command, cwd=tmp_path).returncode == 0
    (folder,) = (path for path in (tmp_path / "runs" / "cells").iterdir() if path.is_dir())
    for path in (*folder.glob("*.toml"), *(tmp_path / "results" / "cells").glob("*.json")):
        path.unlink()  # as a kill leaves it before config.toml
    again = warm_cli(*command, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "0 of 1 cells are done, 1 to run" in again.stderr


def test_render_draws_what_is_there_and_runs_nothing(warm_cli: Any, tmp_path: Path) -> None:
    done = warm_cli("paper", "table1", "--render", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "results" / "tables").iterdir()) == [
        "table1-paper.md", "table1-paper.png", "table1-paper.svg", "table1-paper.tex",
    ]  # fmt: skip
    assert "| DP-SSL | [6.54 ± 0.98] | [4.78 ± 0.26] |" in done.stdout
    assert "None of 645 cells was run." in done.stdout
    assert not (tmp_path / "runs").exists()


def test_render_and_list_keep_to_the_cells_that_are_chosen(warm_cli: Any, tmp_path: Path) -> None:
    chosen = ("--cells", "labels=40", "--cells", "method=fixmatch,uda")  # both count
    listed = warm_cli("paper", "table1", *FEW_STEPS, *chosen, "--list", cwd=tmp_path).stdout.splitlines()
    assert listed == ["digits-40_uda_4-steps_seed-1: to run", "digits-40_fixmatch_4-steps_seed-1: to run"]
    drawn = warm_cli("paper", "table1", *FEW_STEPS, *chosen, "--render", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    rows = [line for line in drawn.stdout.splitlines() if line.startswith("| ")]
    assert rows == ["|  | digits, 40 labels |", "| --- | ---: |", "| UDA |  |", "| FixMatch (RA) |  |"]
    assert (
        tmp_path / "results" / "tables" / "table1-small-4-steps-seeds-1-part-labels-40-method-fixmatch,uda.png"
    ).is_file(), "not that of all cells, of another part, another budget or other seeds"
    many = ",".join(sorted({cell.method for cell in table("table1", "small").cells} - {"dp-ssl", "fixmatch"}))
    for n_labels in (40, 250):
        cells = ("--cells", f"method={many}", f"labels={n_labels}")
        assert warm_cli("paper", "table1", *FEW_STEPS, *cells, "--render", cwd=tmp_path).returncode == 0
    pictures = [path.name for path in (tmp_path / "results" / "tables").glob("*.png")]
    assert len(pictures) == 3, "names that are too long are cut, and told apart all the same"
    assert max(map(len, pictures)) < 150


def test_render_names_the_budgets_of_which_there_are_results(warm_cli: Any, repo_root: Path, tmp_path: Path) -> None:
    results = ("--results", repo_root / "results" / "cells")
    drawn = warm_cli("paper", "table1", "--scale", "small", "--steps", "9", *results, "--render", cwd=tmp_path)
    assert "None of 87 cells was run." in drawn.stdout
    there = [cell for cell in table("table1", "small", 1200).cells if (results[1] / f"{cell.name}.json").exists()]
    assert len(there) > 80
    assert f"note: {results[1]} has files of {len(there)} runs like these with --steps 1200" in drawn.stderr


def test_a_run_that_another_default_of_its_method_began_is_not_gone_on_with(warm_cli: Any, tmp_path: Path) -> None:
    command = ("paper", "table3", *FEW_STEPS, "--cells", "method=fixmatch")
    assert warm_cli(*command, cwd=tmp_path).returncode == 0
    (folder,) = (path for path in (tmp_path / "runs" / "cells").iterdir() if path.is_dir())
    run = RunFolder(folder)
    config, environment = read_config(run)
    assert config.baseline.method_settings[0] == "threshold=0.95"
    write_config(run, with_values(config, {"method_settings": ("threshold=0.5",)}), environment)
    next((tmp_path / "results" / "cells").glob("*.json")).unlink()
    assert warm_cli(*command, cwd=tmp_path).returncode == 0
    assert read_config(run)[0].baseline.method_settings == config.baseline.method_settings


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tabel1",), "'tabel1': no such table or figure; choose one of table1, table2"),
        (("table1", "--cells", "method=fixmach"), "--cells method=fixmach: no such cell; method may be pi-model"),
        (("table1", "--scale", "tiny"), "--scale 'tiny': choose one of paper, fashion, small"),
        (("table2", "--scale", "small"), "table2 is STL-10, which has no stand-in"),
        (("table1", "--steps", "3"), "--steps 3: must be at least 4"),
        (("table1", "--max-minutes", "-1"), "--max-minutes -1: must be at least 0"),
        (("table1", "--max-minutes", "nan"), "--max-minutes nan: must be at least 0"),
        (("table1", "--jobs", "0"), "--jobs 0: must be between 1 and 1024"),
        (("table1", "--jobs", "5000"), "--jobs 5000: must be between 1 and 1024"),
        (("table1", "--threads", "-1"), "--threads -1: must be between 0 and 1024"),
        (("table1", "--list", "--render"), "--list --render: choose one of them"),
        (("table1", "--list", "--results", "elsewhere"), "--results elsewhere: no such folder"),
        (("table1", "--seeds", "-1"), "--seeds -1: must be at least 0"),
    ],
)
def test_bad_input_is_named(warm_cli: Any, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = warm_cli("paper", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []

"""`dpssl report` and the page that every run ends with: when it is written, when it goes, and what may be missing."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from dpssl import cli
from dpssl.commands import report as report_command


@pytest.fixture
def run_copy(tiny_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def test_report_of_a_finished_run(warm_cli: Any, run_copy: Path) -> None:
    assert not (run_copy / "report.html").exists(), "tests run with --report false"
    done = warm_cli("report", run_copy)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"Report: {run_copy / 'report.html'}\n"
    assert "Annotation accuracy" in (run_copy / "report.html").read_text(encoding="utf-8")


def test_a_run_ends_with_its_report_and_a_stale_one_goes(warm_cli: Any, run_copy: Path) -> None:
    """A new result of a step removes the page with the summary; the command's end makes it again."""
    done = warm_cli("label", run_copy, "--redo", "--report", "true")
    assert done.returncode == 0, done.stderr
    assert f"Report: {run_copy / 'report.html'}" in done.stdout
    page = (run_copy / "report.html").read_text(encoding="utf-8")
    assert "Test accuracy" not in page, "the end model went with the labels it was made from"
    done = warm_cli("train", run_copy, "--report", "false")
    assert done.returncode == 0, done.stderr
    assert not (run_copy / "report.html").exists()


def test_report_of_a_run_with_votes_alone_scores_it_first(warm_cli: Any, run_copy: Path) -> None:
    for name in ("soft_labels.npz", "soft_labels.csv", "label_model.safetensors", "end_model.safetensors",
                 "embeddings.npz", "summary.json"):  # fmt: skip
        (run_copy / name).unlink()
    done = warm_cli("report", run_copy)
    assert done.returncode == 0, done.stderr
    assert (run_copy / "summary.json").exists()
    assert "Left out: this run has no soft labels." in (run_copy / "report.html").read_text(encoding="utf-8")


def test_no_run_and_a_damaged_one_are_errors(warm_cli: Any, run_copy: Path) -> None:
    done = warm_cli("report", run_copy / "nowhere")
    assert done.returncode == 2
    assert "no such run folder" in done.stderr
    (run_copy / "soft_labels.npz").write_bytes(b"PK")
    done = warm_cli("report", run_copy)
    assert done.returncode == 2
    assert "soft_labels.npz: is damaged" in done.stderr
    assert not (run_copy / "report.html").exists()


def test_without_its_libraries_a_run_ends_well_and_report_says_what_to_install(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report_command, "NEEDED", ("matplotlib", "no_such_library"))
    assert cli.main(["evaluate", str(run_copy), "--report", "true"]) == 0
    captured = capsys.readouterr()
    assert "annotation accuracy" in captured.out
    assert "note: no report.html, which needs no_such_library; pip install no_such_library" in captured.err
    assert cli.main(["report", str(run_copy)]) == 2
    assert "a report needs no_such_library: pip install no_such_library" in capsys.readouterr().err
    assert "Traceback" not in captured.err
    assert sys.modules.get("no_such_library") is None

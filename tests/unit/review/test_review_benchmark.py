"""benchmarks/review.py for a few steps: it reviews, refines and writes its figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_benchmark_writes_its_figures(repo_root: Path, tmp_path: Path) -> None:
    script = repo_root / "benchmarks" / "review.py"
    flags = ["--seeds", "1", "--steps", "4", "--end-steps", "4", "--reviewed", "10", "--out", str(tmp_path / "x.json")]
    done = subprocess.run([sys.executable, str(script), *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (figures,) = json.loads((tmp_path / "x.json").read_text())["results"]
    assert set(figures) == {"before", "useful", "random"}
    assert figures["useful"]["all"] > figures["before"]["all"], "ten wrong ones are right by the oracle's word"

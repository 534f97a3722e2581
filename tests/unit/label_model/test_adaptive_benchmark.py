"""benchmarks/label_model.py runs, and says clearly what it needs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
SCRIPT = REPOSITORY / "benchmarks" / "label_model.py"
SHARED_VOTES = REPOSITORY.parent / "shared" / "tools" / "votes.py"


def run(script, *arguments):
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.skipif(not SHARED_VOTES.is_file(), reason="the shared votes are not beside the checkout")
def test_quick_run_writes_a_table_in_which_the_default_wins(tmp_path):
    out = tmp_path / "results.json"
    done = run(SCRIPT, "--quick", "--parts", "synthetic", "--out", out)
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    accuracy = {row["model"]: row["acc"] for row in results["synthetic_mean"]}
    assert max(accuracy, key=lambda name: accuracy[name]) == "dpssl"
    assert {"versions", "commit", "cpu_cores"} <= results.keys()


def test_without_the_shared_votes_it_says_so(tmp_path):
    alone = tmp_path / "checkout" / "benchmarks" / "label_model.py"
    alone.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, alone)
    done = run(alone, "--quick")
    assert done.returncode != 0
    assert "votes.py is not there" in done.stderr

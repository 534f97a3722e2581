"""benchmarks/record_run.py turns a finished run into one file of results."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.slow
def test_a_run_becomes_a_file_of_results(tiny_run: Path, repo_root: Path, tmp_path: Path) -> None:
    out, votes = tmp_path / "result.json", tmp_path / "votes.npz"
    script = repo_root / "benchmarks" / "record_run.py"
    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))  # which is scored again
    command = [sys.executable, str(script), str(run), "--out", str(out), "--votes", str(votes), "--commit", "abc"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result, summary = json.loads(out.read_text()), json.loads((tiny_run / "summary.json").read_text())
    assert result["commit"] == "abc"
    assert (result["label_seed"], result["n_labels"]) == (1, 40)
    assert result["figures"]["annotation_accuracy"] == summary["annotation_accuracy"]
    assert result["minutes_per_step"] == summary["minutes_per_step"]
    assert {"majority", "paper", "triplet"} <= result["figures"]["label_models"].keys()
    assert [line["step"] for line in result["curve"] if line["stage"] == "lfs"] == [2, 4, 6]
    assert result["config"]["n_lfs"] == 6
    with np.load(votes, allow_pickle=False) as kept:
        right = kept["votes"] == kept["truth"][:, None]
        assert right[kept["votes"] >= 0].mean() == pytest.approx(result["figures"]["lf_precision"])

"""benchmarks/baselines.py runs, and counts images as the methods draw them."""

import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_quick_run_counts_the_images_of_a_step(tmp_path: Path) -> None:
    out = tmp_path / "steps.json"
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "baselines.py"), "--device", "cpu", "--steps", "4"]
    command += ["--repeats", "1", "--methods", "supervised", "mean-teacher", "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    methods = json.loads(out.read_text())["methods"]
    # Batches of 32 labelled and 6 times as many unlabelled images; FixMatch and Mean Teacher look at two views of them.
    assert {name: row["images"] for name, row in methods.items()} == {
        "fixmatch": 32 + 2 * 192, "supervised": 32, "mean-teacher": 32 + 2 * 192,
    }  # fmt: skip
    assert methods["fixmatch"]["of_fixmatch"] == 1

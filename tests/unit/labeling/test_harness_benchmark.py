"""The benchmark of short runs works for labeling functions, other methods and a warm start."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SMALL = {
    "steps": 4, "window": 2, "batch_size": 10, "unlabeled_ratio": 1, "depth": 10, "width": 1, "strides": [1, 2, 1],
    "flip": False, "compile": False, "threads": 1,
}  # fmt: skip
FEW_LFS = {"n_lfs": 10, "mcl_max_steps": 2, "mcl_min_steps": 1, "mcl_window": 1}


def test_runs_of_a_plan(benchmark_script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    script = benchmark_script("harness")
    plan, out = tmp_path / "plan.json", tmp_path / "out.json"
    warm = {"warm_steps": 2, "warm_batch_size": 8}
    runs = [["ours", "dp-ssl", {**SMALL, **FEW_LFS}], ["warm", "fixmatch", {**SMALL, **warm}]]
    plan.write_text(json.dumps(runs))
    script.main([str(plan), "--data", "digits", "--seeds", "1", "--device", "cpu", "--out", str(out)])
    ours, other = json.loads(out.read_text())["runs"]
    assert [line["step"] for line in ours["curve"]] == [2, 4]
    assert {"annotation_accuracy", "test_accuracy", "recall_inside_specialties", "feature_cosine"} <= ours.keys()
    assert 0 <= ours["coverage"] <= 1
    assert sum(ours["specialists_per_class"]) > 0
    assert other["config"]["warm_steps"] == 2
    assert 0 <= other["curve"][-1]["accuracy"] <= 1
    with pytest.raises(SystemExit, match="choose fixmatch-250, traps-40"):
        script.main(["nothing"])

"""The benchmark of short runs works for labeling functions, other methods and a warm start."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from dpssl.checks import check
from dpssl.config import Config, with_values

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
    assert sum(other["curve"][-1]["confusions"].values()) > 0
    with pytest.raises(SystemExit, match="choose fixmatch-250, traps-40, gap-40"):
        script.main(["nothing"])


def test_a_plan_is_gone_on_with(
    benchmark_script: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = benchmark_script("harness")
    plan, out = tmp_path / "plan.json", tmp_path / "out.json"
    plan.write_text(json.dumps([["first", "fixmatch", SMALL], ["second", "supervised", SMALL]]))
    given = [str(plan), "--data", "digits", "--device", "cpu", "--out", str(out)]
    script.main([*given, "--max-minutes", "1e-9"])
    assert not out.exists()
    assert "out of minutes" in capsys.readouterr().out
    script.main(given)
    before = json.loads(out.read_text())["runs"]
    out.write_text(json.dumps({"runs": before[:1]}))
    script.main([*given, "--resume"])
    after = json.loads(out.read_text())["runs"]
    assert after[0] == before[0], "not trained again: its minutes are the same"
    assert [line["name"] for line in after] == ["first", "second"]


def test_every_run_of_the_plans_is_one_that_can_be_made(benchmark_script: Callable[[str], ModuleType]) -> None:
    script = benchmark_script("harness")
    for jobs in script.PLANS.values():
        assert len({name for name, _, _ in jobs}) == len(jobs)
        for _, method, settings in jobs:
            check(with_values(Config(), {**script.COMMON, "method": method, **settings}))


def test_the_largest_confusions_by_hand(benchmark_script: Callable[[str], ModuleType]) -> None:
    truth, labels = np.array([0, 0, 0, 1, 2, 2]), np.array([1, 1, 0, 2, 2, 0])
    found = benchmark_script("harness").largest_confusions(truth, labels, ["cat", "dog", "frog"])
    assert found == {"cat as dog": 2, "dog as frog": 1, "frog as cat": 1}
    assert next(iter(found)) == "cat as dog"


def test_heads_on_a_start_that_stays_as_it_is(
    benchmark_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, out = benchmark_script("frozen_start"), tmp_path / "out.json"
    for name, value in {"N_STEPS": 2, "N_IMAGES": 300, "N_UNLABELED": 20}.items():
        monkeypatch.setattr(script, name, value)
    script.main(["--data", "digits", "--preset", "digits", "--seeds", "3", "--out", str(out)])
    report = json.loads(out.read_text())
    assert [run["name"] for run in report["runs"]] == list(script.ARMS)
    assert all(0 <= run["right"] <= 1 and 0 <= run["right_of_surest_fifth"] <= 1 for run in report["runs"])


def test_who_is_lost_with_fast_and_with_slow_centers(
    benchmark_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, out = benchmark_script("lost_lfs"), tmp_path / "out.json"
    for name, value in {"N_STEPS": 60, "N_IMAGES": 300, "LEARNING_RATES": (1.0,), "CENTER_RATES": (1.0, 0.01)}.items():
        monkeypatch.setattr(script, name, value)
    script.main(["--data", "digits", "--preset", "digits", "--seeds", "3", "--out", str(out)])
    runs = json.loads(out.read_text())["runs"]
    assert [(run["n_labels"], run["center_rate"]) for run in runs] == [(n, c) for n in (40, 300) for c in (1, 0.01)]
    assert runs[0]["n_lost"] > runs[1]["n_lost"]
    assert runs[2]["n_lost"] > runs[3]["n_lost"]


def test_drawn_specialties_are_even(benchmark_script: Callable[[str], ModuleType]) -> None:
    drawn = benchmark_script("frozen_start").drawn_specialties(50, 10, torch.Generator().manual_seed(0))
    assert drawn.sum(0).tolist() == [10] * 10
    assert drawn.sum(1).tolist() == [2] * 50


def test_what_the_first_phase_leaves_of_a_start(
    benchmark_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, out = benchmark_script("first_phase"), tmp_path / "out.json"
    brief = {"steps": 1, "mcl_min_steps": 4, "mcl_max_steps": 4, "mcl_window": 2, "learning_rate": 1.0}
    monkeypatch.setattr(script, "COMMON", brief)
    monkeypatch.setattr(script, "N_ASKED", 200)
    monkeypatch.setattr(
        script, "ARMS", {"all": {}, "none": {"mcl_gradient": 0.0, "weight_decay": 0.0, "bn_momentum": 0.0}}
    )
    script.main(["--data", "digits", "--preset", "digits", "--seeds", "3", "--out", str(out)])
    all_of_it, none_of_it = (run["curve"] for run in json.loads(out.read_text())["runs"])
    assert [line["step"] for line in all_of_it] == [0, 2, 4]
    assert len({line["neighbors"] for line in none_of_it}) == 1, "a backbone at rest knows what it knew"
    assert all_of_it[0] == none_of_it[0]
    assert len({line["neighbors"] for line in all_of_it}) > 1

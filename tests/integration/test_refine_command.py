"""`dpssl refine`: corrections become given labels, training goes on from the run's weights, in a run of its own."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl.review.corrections import NO_CLASS, CorrectionLog
from dpssl.run_folder import RunFolder


def correct(run: Path, changes: Sequence[tuple[int, int]]) -> list[str]:
    """Decide about images of the run as the review page does; returns all ids."""
    file = RunFolder(run).read_soft_labels()
    ids = [str(name) for name in file.ids]
    log = CorrectionLog(RunFolder(run), ids, file.class_names, file.soft_labels.argmax(axis=1), "Ada")
    for change in changes:
        log.decide([change])
    log.close()
    return ids


def split_of(run: Path) -> Any:
    return json.loads((run / "split.json").read_text())


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.fixture
def rows(run: Path) -> list[int]:
    """Images of the run without a given label."""
    unlabeled = set(split_of(run)["unlabeled"])
    return [row for row, name in enumerate(RunFolder(run).read_soft_labels().ids) if str(name) in unlabeled]


def test_corrections_are_labels_and_what_has_no_class_is_left_out(
    warm_cli: Any, run: Path, rows: list[int], tmp_path: Path
) -> None:
    given = next(iter(split_of(run)["labeled"]))
    all_ids = [str(name) for name in RunFolder(run).read_soft_labels().ids]
    # The last one wins; a given label can be corrected; two images are of no class.
    ids = correct(
        run,
        [(rows[0], 3), (rows[0], 4), (rows[1], NO_CLASS), (rows[2], NO_CLASS), (all_ids.index(given), 7)],
    )
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    done = warm_cli("refine", run, "--out", tmp_path / "refined", "--report", "true")
    assert done.returncode == 0, done.stderr
    refined = tmp_path / "refined"
    split = split_of(refined)
    assert split["labeled"] == {**split_of(run)["labeled"], ids[rows[0]]: 4, given: 7}
    assert sorted(split["left_out"]) == sorted([ids[rows[1]], ids[rows[2]]])
    assert not set(split["left_out"]) & {*split["labeled"], *split["unlabeled"]}
    folder = RunFolder(refined)
    assert (folder.read_votes().votes[[rows[1], rows[2]]] == -1).all()
    assert not folder.read_soft_labels().covered[[rows[1], rows[2]]].any()
    lines = [line for line in folder.read_text("soft_labels.csv").splitlines() if line.startswith(ids[rows[1]])]
    assert lines[0].split(",")[1] == ""
    stages = [line["stage"] for line in folder.read_jsonl("metrics.jsonl")]
    assert "mcl" not in stages, "the specialised sets are those of the run"
    assert (folder.read_votes().specialties == RunFolder(run).read_votes().specialties).all()
    assert "What the review has changed" in folder.read_text("report.html")
    assert {path: path.read_bytes() for path in run.iterdir() if path.is_file()} == before, "the run stays as it is"
    noted = folder.read_json("start/refined.json")
    assert (noted["n_reviewed"], noted["n_left_out"]) == (4, 2)


def test_it_goes_on_from_the_weights_for_fewer_steps(warm_cli: Any, run: Path, rows: list[int], tmp_path: Path) -> None:
    import torch

    correct(run, [(rows[0], 3)])
    done = warm_cli("refine", run, "--out", tmp_path / "refined", "--refine-steps", 2)
    assert done.returncode == 0, done.stderr
    config = (tmp_path / "refined" / "config.toml").read_text()
    assert "\nsteps = 2 " in config
    assert "\nend_steps = 1 " in config  # of 4, for 2 of 6
    one, other = (
        RunFolder(folder).read_safetensors("lf_model.safetensors")[0] for folder in (run, tmp_path / "refined")
    )
    weights = [name for name, tensor in one.items() if tensor.is_floating_point() and tensor.ndim > 1]
    moved = sum(float((one[name] - other[name]).norm()) for name in weights)
    size = sum(float(one[name].norm()) for name in weights)
    assert 0 < moved < 0.1 * size, "two steps from the weights of the run"
    assert torch.equal(one["specialties"], other["specialties"])


def test_stopped_and_resumed_it_is_the_same(
    warm_cli: Any, run: Path, rows: list[int], tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    correct(run, [(rows[0], 3), (rows[1], NO_CLASS)])
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    flags = ("--refine-steps", 6, "--checkpoint-minutes", 0)
    done = warm_cli("refine", run, "--out", whole, *flags)
    assert done.returncode == 0, done.stderr
    killed = warm_cli("refine", run, "--out", broken, *flags, die_at=("os.rename", "lfs-00000004", 1))
    assert killed.returncode == -9
    shutil.rmtree(run)  # what it needs of it is in its own folder
    resumed = warm_cli("resume", broken)
    assert resumed.returncode == 0, resumed.stderr
    assert differing(fingerprint(broken), fingerprint(whole)) == []


def test_a_refined_run_can_be_reviewed_and_refined(warm_cli: Any, run: Path, rows: list[int], tmp_path: Path) -> None:
    correct(run, [(rows[0], 3), (rows[1], NO_CLASS), (rows[2], NO_CLASS)])
    assert warm_cli("refine", run, "--out", tmp_path / "one").returncode == 0
    ids = correct(tmp_path / "one", [(rows[1], 5), (rows[3], 6)])
    done = warm_cli("refine", tmp_path / "one", "--out", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    split = split_of(tmp_path / "two")
    assert [split["labeled"].get(ids[row]) for row in rows[:4]] == [3, 5, None, 6]
    assert split["left_out"] == [ids[rows[2]]]
    steps = [(tmp_path / name / "config.toml").read_text().split("\nsteps = ")[1].split()[0] for name in ("one", "two")]
    assert steps[0] == steps[1]


def test_what_it_refuses(warm_cli: Any, run: Path, rows: list[int], tmp_path: Path) -> None:
    def told(*args: object) -> str:
        done = warm_cli("refine", *args)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "corrections.csv: holds no decision to learn from" in told(run)
    correct(run, [(rows[0], 3)])
    assert "--refine-steps -1: must be 0 or more" in told(run, "--refine-steps", -1)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    assert "is not empty, and a run is never overwritten" in told(run, "--out", tmp_path / "taken")
    (run / "end_model.safetensors").unlink()
    assert "end_model.safetensors: no such file; finish the run with `dpssl resume`" in told(run)


def test_a_class_without_any_label_left_is_named(warm_cli: Any, run: Path, tmp_path: Path) -> None:
    labeled = split_of(run)["labeled"]
    ids = [str(name) for name in RunFolder(run).read_soft_labels().ids]
    correct(run, [(ids.index(name), NO_CLASS) for name, label in labeled.items() if label == 2])
    done = warm_cli("refine", run, "--out", tmp_path / "refined")
    assert (done.returncode, "class '2' is a class without a labelled example" in done.stderr) == (2, True)
    assert not (tmp_path / "refined").exists()


def test_images_left_out_are_never_drawn() -> None:
    import torch

    from dpssl.data.batches import unlabeled_pool

    labels = torch.tensor([0, -1, -2, 1, -1])
    assert unlabeled_pool(labels, with_labeled=True).tolist() == [0, 1, 3, 4]
    assert unlabeled_pool(labels, with_labeled=False).tolist() == [1, 4]
    assert unlabeled_pool(torch.tensor([0, -2, 1]), with_labeled=False).tolist() == [0, 2]
    assert np.array_equal(unlabeled_pool(torch.tensor([-1, 0]), with_labeled=True).numpy(), [0, 1])


def test_where_nothing_is_left_to_label_it_says_so_before_it_trains(
    warm_cli: Any, run: Path, rows: list[int], tmp_path: Path
) -> None:
    correct(run, [(row, 3) for row in rows[1:]] + [(rows[0], NO_CLASS)])
    done = warm_cli("refine", run, "--out", tmp_path / "refined")
    assert done.returncode == 2
    assert "no unlabelled images" in done.stderr
    assert "or are of no class (1)" in done.stderr
    assert not (tmp_path / "refined").exists()


def test_a_run_that_knows_the_truth_is_not_gone_on_from(
    warm_cli: Any, run: Path, rows: list[int], tmp_path: Path
) -> None:
    correct(run, [(rows[0], 3)])
    RunFolder(run).write_json("oracle.json", {"uses_truth": True})
    done = warm_cli("refine", run, "--out", tmp_path / "refined")
    assert done.returncode == 2
    assert "knows the truth of the unlabelled images" in done.stderr
    assert not (tmp_path / "refined").exists()

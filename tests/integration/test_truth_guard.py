"""The truth of images nobody labelled decides nothing: scrambling it changes scores and not one byte of any result."""

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dpssl"
TRUTH = {"truth", "test_truth"}
# The table checks it, the choice of labels reveals some of a benchmark set's, the split stratifies its test set, the
# summary scores, the report shows the scores, the figures of a cell of the paper's tables score other label models, and
# the oracle of one of those tables is fed with it.
MAY_READ_TRUTH = {
    "data/table.py",
    "data/label_choice.py",
    "data/split.py",
    "summary.py",
    "report/evaluation.py",
    "paper/figures.py",
    "paper/oracle.py",
}


def test_scrambled_truth_changes_scores_alone(
    warm_cli: Any, tiny: list[str], tmp_path: Path, fingerprint: Any, differing: Any
) -> None:
    pixels, truth = load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 8, 8) * 15).astype(np.uint8)
    ids = np.array([f"image-{row}" for row in range(400)])

    def write_data(train_y: np.ndarray, test_y: np.ndarray) -> None:
        np.savez(
            tmp_path / "data.npz",
            train_x=images[:400], train_y=train_y, test_x=images[400:500], test_y=test_y, ids=ids,
            class_names=np.array(list("0123456789")),
        )  # fmt: skip

    write_data(truth[:400], truth[400:500])
    honest, scrambled = tmp_path / "honest", tmp_path / "scrambled"
    done = warm_cli("run", "--preset", "digits", *tiny, "--data", tmp_path / "data.npz", "--out", honest)
    assert done.returncode == 0, done.stderr

    # The same run from its start, its labels as they were revealed, while the data now lie about all other images.
    scrambled.mkdir()
    for name in ("config.toml", "split.json"):
        shutil.copy(honest / name, scrambled / name)
    revealed = np.isin(ids, list(json.loads((honest / "split.json").read_text())["labeled"]))
    assert revealed.sum() == 40
    shift = np.random.default_rng(0).integers(1, 10, 500)
    wrong = (truth[:500] + shift) % 10
    write_data(np.where(revealed, truth[:400], wrong[:400]), wrong[400:])
    resumed = warm_cli("resume", scrambled)
    assert resumed.returncode == 0, resumed.stderr

    assert differing(fingerprint(scrambled), fingerprint(honest)) == []
    one, other = (json.loads((folder / "summary.json").read_text()) for folder in (honest, scrambled))
    assert one["annotation_accuracy"] != other["annotation_accuracy"]
    assert one["test_log_loss"] != other["test_log_loss"]
    assert one["coverage"] == other["coverage"]


def truth_reads(tree: ast.AST) -> list[str]:
    """Every way to the truth of a dataset: the attribute, its name in getattr or replace, or a string key."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in TRUTH:
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Constant) and node.value in TRUTH:
            found.append(repr(node.value))
    return found


def test_the_search_for_truth_finds_it() -> None:
    code = "dataset.truth[rows]\nrun.dataset.test_truth\ngetattr(dataset, 'truth')\nvars(dataset)['test_truth']\n"
    assert len(truth_reads(ast.parse(code))) == 4
    assert truth_reads(ast.parse("truth = given\nmodel.truth_moments\n")) == []


@pytest.mark.parametrize("module", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_truth_is_read_where_it_may_be(module: Path) -> None:
    reads = truth_reads(ast.parse(module.read_text(encoding="utf-8")))
    if module.relative_to(SOURCE).as_posix() in MAY_READ_TRUTH:
        assert reads, "it no longer reads the truth: take it off the list"
    else:
        assert reads == []


def test_steps_are_handed_no_dataset() -> None:
    """A step gets images and given labels; a whole dataset would bring the truth along."""
    for module in SOURCE.rglob("*.py"):
        if module.relative_to(SOURCE).parts[0] in ("labeling", "label_model", "end_model", "training", "nets"):
            imported = {
                alias.name
                for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            assert not imported & {"Dataset", "Split", "load_dataset"}, module


def test_only_evaluation_summarizes() -> None:
    """`summarize` reads the truth, so nothing but `evaluate` may call it, and no step calls `evaluate`."""
    callers = {
        function.name
        for function in ast.walk(ast.parse((SOURCE / "pipeline.py").read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("summarize", "evaluate")
    }
    assert callers == {"evaluate"}


def test_only_cells_of_the_oracle_reach_it() -> None:
    """Accuracies counted with the truth are for the oracle, and the oracle for the worker, which asks the cell."""
    users: dict[str, set[str]] = {"true_accuracy": set(), "resolve_votes_with_truth": set(), "oracle_accuracy": set()}
    for module in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = {alias.name for alias in node.names}
            else:
                names = {node.arg or ""} if isinstance(node, ast.keyword) else set()
            for name in names & users.keys():
                users[name].add(module.relative_to(SOURCE).as_posix())
    assert users == {
        "true_accuracy": {"paper/oracle.py"},
        "resolve_votes_with_truth": {"paper/worker.py"},
        "oracle_accuracy": {"paper/oracle.py"},
    }

"""Does the label model know which of its labels are right? With and without the LFs' shared doubt, on the same votes.

    python benchmarks/shared_doubt.py runs/* votes.npz     # run folders with known truth, or L, y, confidence arrays

Prints and writes, for each: the labels' accuracy, how often a right label is surer than a wrong one, the accuracy of
the surest labels of each class, log-loss and calibration error. Truth is used to score alone. The figures go to
results/shared_doubt.json.
"""

import argparse
import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from results_file import REPOSITORY, commit, write_results
from sklearn.metrics import roc_auc_score

from dpssl.constants import UNLABELED
from dpssl.label_model import LabelModel, reliability_table
from dpssl.runs import open_run


class Case(NamedTuple):
    name: str
    votes: np.ndarray  # (n, K)
    confidence: np.ndarray
    specialties: np.ndarray | None
    given: np.ndarray  # (n,) labels, -1 = unlabelled
    truth: np.ndarray


def read_case(path: Path) -> Case:
    if path.is_dir():
        run = open_run(path, writes=False)
        file = run.folder.read_votes(run.dataset.ids)
        given = run.split.given_labels
        return Case(path.name, file.votes, file.confidence, file.specialties, given, run.dataset.truth)
    file = np.load(path)
    given = np.full(len(file["y"]), UNLABELED)
    given[file["labeled"]] = file["y"][file["labeled"]]
    return Case(path.stem, file["L"], file["confidence"], file["specialties"].astype(bool), given, file["y"])


def measure(case: Case) -> dict[str, Any]:
    n_classes = int(case.truth.max()) + 1
    with warnings.catch_warnings():  # about LFs that never vote
        warnings.simplefilter("ignore", UserWarning)
        model = LabelModel(n_classes).fit(case.votes, case.given, case.confidence, case.specialties)
    doubting, rows = model.fitted_, case.given == UNLABELED
    certain = dataclasses.replace(doubting, n_independent=0.0)
    n_surest = min(500, int(rows.sum()) // n_classes * 3 // 4)
    found: dict[str, Any] = {"name": case.name, "n": int(rows.sum()), "n_independent": doubting.n_independent}
    for name, fitted in {"without": certain, "with": doubting}.items():
        model.fitted_ = fitted
        proba = model.predict_proba(case.votes, case.confidence)[rows]
        found[name] = scores(proba, case.truth[rows], n_surest)
    return {**found, "n_surest": n_surest}


def scores(proba: np.ndarray, truth: np.ndarray, n_surest: int) -> dict[str, float]:
    labels, surest = proba.argmax(1), proba.max(1)
    right = labels == truth
    table = reliability_table(proba, truth)
    tops = []
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        tops.append(right[own[np.argsort(-surest[own], kind="stable")[:n_surest]]].mean())
    return {
        "accuracy": float(right.mean()),
        "order": pairs_in_order(surest, right),
        "surest_right": float(np.mean(tops)),
        "log_loss": table.log_loss,
        "ece": table.ece,
    }


def pairs_in_order(surest: np.ndarray, right: np.ndarray) -> float:
    """How often a right label is surer than a wrong one, ties one half: the area under the ROC curve."""
    return float(roc_auc_score(right, surest)) if right.any() and not right.all() else float("nan")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="run folders, or .npz files of L, y, confidence, labeled")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "shared_doubt.json")
    chosen = parser.parse_args(arguments)
    rows = []
    for path in chosen.sources:
        rows.append(measure(read_case(path)))
        for name in ("without", "with"):
            figures = "  ".join(f"{key} {value:.3f}" for key, value in rows[-1][name].items())
            print(f"{rows[-1]['name'][:44]:<44} {name:<8} {figures}", flush=True)
    write_results(chosen.out, {"commit": commit(), "rows": rows})


if __name__ == "__main__":
    main()

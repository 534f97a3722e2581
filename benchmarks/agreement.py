"""How right the labels are that finished runs give together, and each alone, by how many of them are trusted.

    python benchmarks/agreement.py runs/plain runs/zoomed       # -> results/agreement.json

What `dpssl combine` would train on, scored with the truth: with every run's full say, and where a run has none between
classes that it tells apart by size or of which it has lost one. Beside it what label models make of the votes of all
runs put side by side, where all have votes (runs of `dpssl fit` have none).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from results_file import REPOSITORY, commit, write_results

from dpssl.combine import pairs_without_say
from dpssl.config import with_values
from dpssl.label_model import LabelModel, confidence_for
from dpssl.label_model.together import common_labels, surest, without_say
from dpssl.metrics import log_loss
from dpssl.pipeline import VOTES
from dpssl.runs import Run, open_run

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ONE_MODEL = ("majority", "paper", "adaptive")  # for the votes of all runs


def scored(runs: Sequence[Run], no_say: Sequence[Sequence[tuple[int, int]]] | None = None) -> dict[str, Any]:
    dataset, rows = runs[0].dataset, runs[0].split.unlabeled
    files = [run.folder.read_soft_labels(dataset.ids) for run in runs]
    pairs = no_say or [[]] * len(runs)
    soft_labels = np.stack([without_say(file.soft_labels[rows], of) for file, of in zip(files, pairs, strict=True)])
    speaks = np.stack([file.covered[rows] for file in files])
    common, n_runs = common_labels(soft_labels, speaks), speaks.sum(axis=0)
    answers = np.stack([file.soft_labels[rows].argmax(1) for file in files])
    right = common.argmax(1) == dataset.truth[rows]
    product = common ** n_runs[:, None]
    product /= product.sum(1, keepdims=True)
    return {
        "log_loss": log_loss(common, dataset.truth[rows]),
        "log_loss_of_the_product": log_loss(product, dataset.truth[rows]),
        "agreement": float((answers == answers[0]).all(0).mean()),
        "one_of_them_right": float((answers == dataset.truth[rows]).any(0).mean()),
        "right": float(right.mean()),
        "right_of_the_surest": {  # but for ties
            share: float(right[surest(common, n_runs, round(share * len(rows)))].mean()) for share in SHARES
        },
    }


def one_label_model(runs: Sequence[Run]) -> dict[str, float]:
    """Share of right labels when the votes of all runs go into one label model."""
    dataset, rows = runs[0].dataset, runs[0].split.unlabeled
    files = [run.folder.read_votes(dataset.ids) for run in runs]
    votes, confidence = (np.concatenate([getattr(file, name) for file in files], 1) for name in ("votes", "confidence"))
    specialties, given, found = np.concatenate([file.specialties for file in files]), runs[0].split.given_labels, {}
    for variant in ONE_MODEL:
        sure = confidence_for(variant, confidence)
        model = LabelModel(dataset.n_classes, variant).fit(votes, given, sure, specialties)
        found[variant] = float(np.mean(model.predict_proba(votes, sure)[rows].argmax(1) == dataset.truth[rows]))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "agreement.json")
    chosen = parser.parse_args(arguments)
    runs = [open_run(path, writes=False) for path in chosen.runs]
    names = [run.folder.folder.name for run in runs]
    report = {name: scored([run]) for name, run in zip(names, runs, strict=True)}
    if len(runs) > 1:
        together = " and ".join(names)
        files = [run.folder.read_soft_labels(runs[0].dataset.ids) for run in runs]
        no_say = pairs_without_say(runs, files, with_values(runs[0].config, {"device": "cpu"}))
        report[together] = scored(runs)
        if all(run.folder.has(VOTES) for run in runs):
            report[together]["one_label_model"] = one_label_model(runs)
        report[f"{together}, some without a say"] = scored(runs, no_say) | {"no_say": no_say}
    for name, figures in report.items():
        print(name, figures)
    write_results(chosen.out, {"commit": commit(), "runs": report})


if __name__ == "__main__":
    main()

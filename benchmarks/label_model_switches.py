"""What each reading of the paper's label model is worth, one at a time -> results/label_model_switches.json.

    python benchmarks/label_model_switches.py [--seeds 0 1 2] [--rows 10000]

Synthetic votes of specialised labeling functions (50 of them, 10 classes, 40 labelled rows; ../shared/tools/votes.py)
and the eleven real sets of ../shared/data/votes, without any label. Accuracy in per cent of the rows whose truth is
known, which no fit sees; a row without a vote, or with tied classes, counts as a fraction; null where a fit diverged.
docs/method.md tells what the settings are.
"""

import argparse
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from label_model import fractional_accuracy, load_votes_module, real_sets, versions
from results_file import REPOSITORY, commit, write_results

from dpssl import LabelModel
from dpssl.errors import InputError

N_LFS, N_CLASSES, SYNTHETIC = 50, 10, "synthetic"
AS_IT_IS = {"respect_unanimous": False}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # variant, its settings, LabelModel's own
    "adaptive": ("adaptive", {}, {}),
    "adaptive, unanimous rows as it has them": ("adaptive", {}, AS_IT_IS),
    "dawid-skene": ("dawid-skene", {}, {}),
    "dawid-skene, unanimous rows as it has them": ("dawid-skene", {}, AS_IT_IS),
    "paper": ("paper", {}, {}),
    "paper, unanimous rows as it has them": ("paper", {}, AS_IT_IS),
    "paper, no R": ("paper", {"regularizer": "none"}, {}),
    "paper, R as printed": ("paper", {"regularizer_weight": -1.0}, {}),
    "paper, mean over rows": ("paper", {"reduction": "mean"}, {}),
    "paper, mean over rows, R as printed": ("paper", {"reduction": "mean", "regularizer_weight": -1.0}, {}),
    "paper, free class prior": ("paper", {"class_prior": "free"}, {}),
    "paper, conditional labelled term": ("paper", {"labeled_term": "conditional"}, {}),
    "paper, three-part potential": ("paper", {"potential": "three-part"}, {}),
    "paper, no pull of theta": ("paper", {"theta_shrinkage": 0.0}, {}),
}


def accuracy_of(name: str, votes: np.ndarray, y: np.ndarray | None, n_classes: int, truth: np.ndarray) -> float | None:
    """Share of the first rows, those of `truth`, that get their class; None where the fit diverges."""
    variant, settings, own = MODELS[name]
    model = LabelModel(n_classes, variant, settings=settings or None, **own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labeling functions that never vote
        try:
            found = model.fit(votes, y).predict_proba(votes[: len(truth)])
        except InputError:
            return None
    return round(fractional_accuracy(found, truth), 4)


def shown(name: str, accuracy: dict[str, float | None]) -> str:
    """Synthetic seeds one by one, and the mean of the real sets."""
    synthetic = [value for key, value in accuracy.items() if key.startswith(SYNTHETIC)]
    real = [value for key, value in accuracy.items() if not key.startswith(SYNTHETIC) and value is not None]
    drawn = " ".join("diverged" if value is None else f"{100 * value:5.2f}" for value in synthetic)
    return f"{name:<44} {SYNTHETIC} {drawn}   real, mean of {len(real)}: {100 * statistics.mean(real):5.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "label_model_switches.json")
    chosen = parser.parse_args(arguments)
    shared, rows = load_votes_module(), list[dict[str, Any]]()
    noted = {"n_rows": chosen.rows, "n_lfs": N_LFS, "n_classes": N_CLASSES, "n_labeled": 4 * N_CLASSES}
    for name in MODELS:
        accuracy = dict[str, float | None]()
        for seed in chosen.seeds:
            drawn = shared.make_votes(chosen.rows, N_LFS, N_CLASSES, seed=seed)
            votes = np.concatenate([drawn["L"], drawn["Ll"]])
            y = np.concatenate([np.full(chosen.rows, -1), drawn["yl"]])
            accuracy[f"{SYNTHETIC}, seed {seed}"] = accuracy_of(name, votes, y, N_CLASSES, drawn["y"])
        for set_name, votes, truth in real_sets():
            n_classes = int(max(votes.max(), truth.max())) + 1
            accuracy[set_name] = accuracy_of(name, votes, None, n_classes, truth)
        rows.append({"model": name, "accuracy": accuracy})
        print(shown(name, accuracy), flush=True)
        write_results(chosen.out, {"commit": commit(), "versions": versions(), **noted, "rows": rows})


if __name__ == "__main__":
    main()

"""Label models on the votes of our own runs: what is right, and what the surest are worth -> results/own_votes.json.

    python benchmarks/own_votes.py          # peers: the `bench` extra (snorkel, crowd-kit, cleanlab)

results/votes holds how the 50 labeling functions of a run vote on 10,000 images of CIFAR-10, with 40 labels, and how
sure each was. Besides every model of benchmarks/label_model.py our default gets these confidences too, as it does in a
run. The truth is only counted with.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from label_model import MODELS, OURS, fractional_accuracy, timed, versions
from numpy.typing import NDArray
from results_file import REPOSITORY, commit, write_results

from dpssl import LabelModel

WITH_CONFIDENCES = f"{OURS} with confidences"
SIDE_BY_SIDE = ("cifar10_40_seed11", "cifar10_40_seed11_zoom")  # two runs on the same labels
N_SUREST = 100  # of each class
EPOCHS = 500  # of Snorkel


def own_sets() -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
    """Votes, confidences and truth of each run, and of two of them side by side."""
    kept = {path.stem: dict(np.load(path)) for path in sorted((REPOSITORY / "results" / "votes").glob("*.npz"))}
    yield from kept.items()
    first, second = (kept[name] for name in SIDE_BY_SIDE)
    beside = {name: np.concatenate([first[name], second[name]], 1) for name in ("votes", "confidence")}
    yield " and ".join(SIDE_BY_SIDE), {**beside, "truth": first["truth"]}


def accuracy_of_surest(soft_labels: NDArray[Any], truth: NDArray[Any]) -> float:
    """Share that is right of the N_SUREST surest of each class; where more are equally sure, of these in the mean."""
    labels, confidence = soft_labels.argmax(1), soft_labels.max(1).round(9)
    right = list[float]()
    for label in range(soft_labels.shape[1]):
        members = np.flatnonzero(labels == label)
        _, place = np.unique(-confidence[members], return_inverse=True)
        mean_right = np.bincount(place, truth[members] == label) / np.bincount(place)
        right.extend(mean_right[np.sort(place)[:N_SUREST]])
    return float(np.mean(right))


def with_confidences(data: dict[str, Any]) -> NDArray[Any]:
    votes, confidence = data["L"], data["confidence"]
    return LabelModel(data["n_classes"]).fit(votes, confidence=confidence).predict_proba(votes, confidence)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", help="of them; default: all")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "own_votes.json")
    chosen = parser.parse_args(arguments)
    models = {WITH_CONFIDENCES: with_confidences, **MODELS}
    rows = []
    for set_name, file in own_sets():
        votes, truth = file["votes"].astype(np.int16), file["truth"].astype(np.int64)
        data = {"L": votes, "confidence": file["confidence"], "n_classes": int(truth.max()) + 1, "epochs": EPOCHS}
        for name in chosen.models or models:
            soft_labels = timed(models[name], data, with_memory=False)["soft"]
            scores = {
                "accuracy": fractional_accuracy(soft_labels, truth),
                "accuracy_of_surest": accuracy_of_surest(soft_labels, truth),
            }
            rows.append({"set": set_name, "model": name} | {key: round(value, 4) for key, value in scores.items()})
            print(*rows[-1].values(), flush=True)
    write_results(chosen.out, {"commit": commit(), "versions": versions(), "n_surest": N_SUREST, "rows": rows})


if __name__ == "__main__":
    main()

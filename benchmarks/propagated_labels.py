"""How many of the labels that step 1 may begin with are right -> results/propagated_labels.json. CPU, or faster a GPU.

    python benchmarks/propagated_labels.py --data cifar10 --seeds 1 2 7 11 12 13 14 15 16 17 \\
        --starts SimCLR=wide.safetensors BYOL=byol.safetensors

For each start and label seed: a logistic regression that knows the given labels, labels that spread from them among
neighbours (dpssl.labeling.propagate), and these where the classes' shares are taken from the given labels
(`--class-prior labels`), all in the start's features. The truth is only counted with.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from frozen_start import started_backbone
from numpy.typing import NDArray
from results_file import REPOSITORY, commit, write_results
from sklearn.linear_model import LogisticRegression
from warm_start import neighbor_accuracy

from dpssl.class_prior import label_shares
from dpssl.config import load_preset, with_values
from dpssl.data.batches import ImageBank
from dpssl.data.readers import load_dataset
from dpssl.data.split import make_split
from dpssl.labeling.propagate import neighbor_graph, spread_labels, start_directions
from dpssl.training.precision import pick_device

SHARES = tuple(round(share, 2) for share in np.arange(0.05, 1.01, 0.05))  # of the images, surest first
PER_CLASS = (500, 1000)
REGULARIZATION = 10.0  # C of the regression, on directions: hardly any


def scores(probabilities: NDArray[Any], truth: NDArray[np.int64]) -> dict[str, Any]:
    """Shares of labels that are right: of all, of the surest, of the surest of each class; and the mean confidence."""
    labels, confidence = probabilities.argmax(1), probabilities.max(1)
    right, order = labels == truth, np.argsort(-confidence, kind="stable")
    of_class = {
        f"right_of_{n}_per_class": right[
            np.concatenate([order[labels[order] == each][:n] for each in range(probabilities.shape[1])])
        ].mean()
        for n in PER_CLASS
    }
    of_surest = [float(right[order[: max(1, round(share * len(order)))]].mean()) for share in SHARES]
    numbers = {"right": right.mean(), "confidence": confidence.mean(), **of_class}
    rounded = {name: round(float(value), 4) for name, value in numbers.items()}
    return {**rounded, "right_of_surest": [round(value, 4) for value in of_surest]}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10", help="as of dpssl run")
    parser.add_argument("--preset", default="cifar10-40", help="whose network the starts are of")
    parser.add_argument("--starts", nargs="+", required=True, metavar="NAME=FILE", help="as warm_start.py writes them")
    parser.add_argument("--n-labels", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "propagated_labels.json")
    chosen = parser.parse_args(arguments)
    device, base = pick_device(chosen.device), load_preset(chosen.preset)
    loaded, held_out = load_dataset(chosen.data), base.data.test_fraction
    splits = {seed: make_split(loaded, chosen.n_labels, seed, held_out) for seed in chosen.seeds}
    dataset = splits[chosen.seeds[0]][0]
    if any(list(other.ids) != list(dataset.ids) for other, _ in splits.values()):
        parser.error(
            f"--data {chosen.data}: has no test images of its own, so that label seeds train on different ones"
        )
    bank = ImageBank.from_numpy(dataset.images, device)
    truth, runs, starts = np.asarray(dataset.truth), list[dict[str, Any]](), list[dict[str, Any]]()
    for item in chosen.starts:
        name, _, weights = item.partition("=")
        config = with_values(base, {"backbone_weights": weights})
        backbone = started_backbone(config, bank.images.shape[1]).to(device)
        features = start_directions(backbone, bank, torch.arange(len(bank)))
        near = neighbor_accuracy(features, torch.from_numpy(truth).long().to(device))
        starts.append({"start": name, "neighbors": round(near, 4)})
        graph, table = neighbor_graph(features), features.cpu().numpy()
        for seed, (_, split) in splits.items():
            given, known = split.given_labels, split.labeled
            regression = LogisticRegression(C=REGULARIZATION, max_iter=1000).fit(table[known], given[known])
            shares = torch.from_numpy(label_shares(given, dataset.n_classes))
            spread, even = (
                spread_labels(graph, torch.from_numpy(given), dataset.n_classes, known_shares).numpy()
                for known_shares in (None, shares)
            )
            ways = {"heads": regression.predict_proba(table), "propagation": spread, "propagation, shares": even}
            for by, found in ways.items():
                rest = np.setdiff1d(np.arange(len(truth)), known)
                runs.append({"start": name, "seed": seed, "by": by, **scores(found[rest], truth[rest])})
                print(name, seed, by, runs[-1]["right"], runs[-1]["right_of_surest"][9], flush=True)
    report = {"commit": commit(), "data": chosen.data, "n_labels": chosen.n_labels, "shares": SHARES, "starts": starts}
    write_results(chosen.out, {**report, "runs": runs})


if __name__ == "__main__":
    main()

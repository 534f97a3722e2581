"""Digits with 40 labels: dpssl beside FixMatch and scikit-learn's systems, all in one run -> results/digits.json.

    python benchmarks/digits.py [--seeds 1 2 3 4 5] [--out results/digits.json]

Every system gets the same images and the same labels of a seed. FixMatch is K = 1 in our own loop (no multiple-choice
learning, no feature transform), for as many steps as dpssl takes in steps 1 and 3 together, so about the same minutes.
The preset `digits` was explored on these label seeds (network, K) and settled on the label seeds 11 to 20 (learning
rate, steps, the feature transform's start), by annotation accuracy; FixMatch has the same network and learning rate.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpssl.constants import THREADS_WAIT

os.environ.update({**THREADS_WAIT, **os.environ})  # before torch is imported

import numpy as np
import torch
from results_file import REPOSITORY, commit, write_results
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from dpssl import __version__
from dpssl.config import Config, load_preset, with_values
from dpssl.data.batches import ImageBank
from dpssl.data.readers import load_dataset
from dpssl.data.split import Split, make_split
from dpssl.data.table import Dataset
from dpssl.labeling.train import train_lfs
from dpssl.labeling.vote import cast_votes
from dpssl.training.watch import Watch

FIXMATCH = {"n_lfs": 1, "mcl": False, "feature_transform": False, "backbone_gradient": "sum"}
Scores = dict[str, float]


def run_dpssl(config: Config, seed: int) -> Scores:
    """`dpssl run` as a user types it, in a process of its own whose peak memory is read."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "dpssl", "run", "--seed", str(seed), "--out", str(out)]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        if status:
            raise SystemExit(f"dpssl run failed with status {status}")
        summary = json.loads((out / "summary.json").read_text())
    kept = ("annotation_accuracy", "test_accuracy", "majority_vote_accuracy", "coverage", "annotation_macro_f1")
    return {name: summary[name] for name in kept} | {"minutes": seconds / 60, "peak_mb": usage.ru_maxrss / 1024}


def run_fixmatch(config: Config, seed: int) -> Scores:
    """Plain FixMatch in the same loop: its own predictions annotate and are tested."""
    steps = config.labeling.steps + config.end_model.end_steps
    config = with_values(config, {**FIXMATCH, "seed": seed, "steps": steps})
    dataset, split = split_of(config, seed)
    bank = ImageBank.from_numpy(dataset.images, torch.device("cpu"))
    started = time.perf_counter()
    given = torch.from_numpy(split.given_labels)
    network = train_lfs(bank, given, dataset.n_classes, config, Watch(progress=False))
    minutes = (time.perf_counter() - started) / 60
    annotated = cast_votes(network, bank).votes[split.unlabeled, 0]
    tested = cast_votes(network, bank.with_images(dataset.test_images)).votes[:, 0]
    return scores(dataset, split, annotated, tested, minutes)


def run_sklearn(make_model: Callable[[], Any]) -> Callable[[Config, int], Scores]:
    """A scikit-learn classifier on the pixels; it sees the unlabelled images through y = -1."""

    def run(config: Config, seed: int) -> Scores:
        dataset, split = split_of(config, seed)
        started = time.perf_counter()
        model = make_model().fit(pixels(dataset.images), split.given_labels)
        minutes = (time.perf_counter() - started) / 60
        annotated = model.predict(pixels(dataset.images[split.unlabeled]))
        return scores(dataset, split, annotated, model.predict(pixels(dataset.test_images)), minutes)

    return run


class LabeledOnly(LogisticRegression):
    """Logistic regression on the labelled images alone."""

    def fit(self, images: np.ndarray, y: np.ndarray) -> "LabeledOnly":
        super().fit(images[y >= 0], y[y >= 0])
        return self


SYSTEMS: dict[str, Callable[[Config, int], Scores]] = {
    "dpssl": run_dpssl,
    "FixMatch (K = 1, same loop)": run_fixmatch,
    "LabelSpreading (knn, 7)": run_sklearn(lambda: LabelSpreading(kernel="knn", n_neighbors=7)),
    "SelfTraining (SVC)": run_sklearn(lambda: SelfTrainingClassifier(SVC(probability=True, gamma="scale"))),
    "LogisticRegression, 40 labels": run_sklearn(lambda: LabeledOnly(max_iter=2000)),
}


def split_of(config: Config, seed: int) -> tuple[Dataset, Split]:
    return make_split(load_dataset(config.data.data), config.data.n_labels, seed, config.data.test_fraction)


def pixels(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1) / 255.0


def scores(dataset: Dataset, split: Split, annotated: np.ndarray, tested: np.ndarray, minutes: float) -> Scores:
    return {
        "annotation_accuracy": float((annotated == dataset.truth[split.unlabeled]).mean()),
        "test_accuracy": float((tested == dataset.test_truth).mean()),
        "minutes": minutes,
    }


def standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def table(results: dict[str, list[Scores]]) -> str:
    lines = [f"{'':<31} {'annotation %':>14} {'worst':>7} {'test %':>14} {'worst':>7} {'min.':>6} {'longest':>8}"]
    for name, runs in results.items():
        columns = {key: [run[key] for run in runs] for key in ("annotation_accuracy", "test_accuracy", "minutes")}
        cells = [f"{_mean_and_error(columns[key])} {100 * min(columns[key]):7.2f}" for key in list(columns)[:2]]
        minutes = columns["minutes"]
        lines.append(f"{name:<31} {' '.join(cells)} {statistics.mean(minutes):6.2f} {max(minutes):8.2f}")
    return "\n".join(lines)


def _mean_and_error(values: list[float]) -> str:
    percent = [100 * value for value in values]
    return f"{statistics.mean(percent):7.2f} ± {standard_error(percent):4.2f}"


def verdict(results: dict[str, list[Scores]]) -> str:
    """What the benchmark is for, in two lines: the gap to FixMatch in standard errors, and the memory."""
    ours, theirs = (
        [run["annotation_accuracy"] for run in results[name]] for name in ("dpssl", "FixMatch (K = 1, same loop)")
    )
    gap = [100 * (a - b) for a, b in zip(ours, theirs, strict=True)]
    peak = max(run["peak_mb"] for run in results["dpssl"])
    return (
        f"annotation, dpssl minus FixMatch on the same labels: {statistics.mean(gap):+.2f} ± {standard_error(gap):.2f} "
        f"points\npeak memory of a run: {peak:,.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "digits.json")
    arguments = parser.parse_args()
    config = load_preset("digits")
    torch.set_num_threads(config.run.threads or torch.get_num_threads())
    results: dict[str, list[Scores]] = {name: [] for name in SYSTEMS}
    for seed in arguments.seeds:
        for name, run in SYSTEMS.items():
            results[name].append(run(config, seed))
            latest = results[name][-1]
            print(
                f"seed {seed}  {name:<31} annotation {100 * latest['annotation_accuracy']:6.2f}  "
                f"test {100 * latest['test_accuracy']:6.2f}  {latest['minutes']:.2f} min",
                flush=True,
            )
    print("\n" + table(results) + "\n\n" + verdict(results))
    report = {
        "what": "scikit-learn digits, 40 labels, one row a seed",
        "seeds": arguments.seeds,
        "preset": "digits",
        "versions": {"dpssl": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "commit": commit(),
        "device": f"cpu, {torch.get_num_threads()} threads",
        "results": results,
    }
    write_results(arguments.out, report)
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()

"""How many wrong labels lie in the kinds of image that the rest of their class explains least. The truth scores only.

    python benchmarks/kinds.py runs/seed1 runs/seed12       # -> results/kinds.json

Beside it as many of the labels that the run is least sure of. See dpssl.end_model.kinds; `dpssl combine --unexplained`
leaves such kinds out. `--as-report` looks at as many images as a report does, which names the hardly explained ones.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_file import REPOSITORY, commit, write_results

from dpssl.audit import (
    hardly_explained,
    images_asked_for_kinds,
    kinds_of_run,
    knows_its_kinds,
    start_features,
)
from dpssl.end_model.kinds import least_explained
from dpssl.runs import Run, open_run
from dpssl.warm_start import BACKBONE

CPU = torch.device("cpu")
SHARE = 0.1
N_SHOWN = 5  # kinds, the least explained first


def scored(run: Run, features: np.ndarray, asked: np.ndarray | None) -> dict[str, Any]:
    found = kinds_of_run(run, features, CPU, "auto", asked)
    wrong = found.labels != run.dataset.truth[found.rows]
    confidence = run.folder.read_soft_labels(run.dataset.ids).soft_labels[found.rows].max(1)
    least = least_explained(found.explained, found.kinds, SHARE)
    least_sure = np.argsort(confidence, kind="stable")[: int(least.sum())]
    first = np.argsort(found.explained, kind="stable")[:N_SHOWN]
    return {
        "label_seed": run.config.run.seed,
        "wrong": float(wrong.mean()),
        "n_images": len(found.rows),
        "n_named": len(hardly_explained(found)),
        "n_least_explained": int(least.sum()),
        "wrong_of_the_least_explained": float(wrong[least].mean()) if least.any() else None,
        "wrong_of_the_least_sure": float(wrong[least_sure].mean()) if least.any() else None,
        "kinds": [_described(run, found.rows[of_it], found.labels[of_it]) | {"explained": float(found.explained[kind])}
                  for kind in first for of_it in [found.kinds == kind]],
    }  # fmt: skip


def _described(run: Run, rows: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    names, truth = run.dataset.class_names, run.dataset.truth[rows]
    counts = np.bincount(truth, minlength=len(names))
    return {
        "label": names[labels[0]],
        "n_images": len(rows),
        "right": float((truth == labels).mean()),
        "mostly": names[int(counts.argmax())],
        "share_of_that": float(counts.max() / len(rows)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "kinds.json")
    parser.add_argument("--as-report", action="store_true")
    chosen = parser.parse_args(arguments)
    features: dict[
        tuple[str, bytes, bytes], np.ndarray
    ] = {}  # several runs often begin with the same weights and images
    report = {}
    for path in chosen.runs:
        run = open_run(path, writes=False)
        if not knows_its_kinds(run) or (run.dataset.truth[run.split.unlabeled] < 0).any():
            parser.error(f"{path}: needs a warm start, an end model and the truth of all images")
        own = str(path) if run.folder.has(BACKBONE) else run.config.backbone.backbone_weights
        asked = images_asked_for_kinds(run) if chosen.as_report else None
        start = (own, b"" if asked is None else asked.tobytes(), run.dataset.ids.tobytes())
        if start not in features:
            features[start] = start_features(run, CPU, "auto", asked)
        report[path.name] = scored(run, features[start], asked)
        print(path.name, report[path.name], flush=True)
    write_results(chosen.out, {"commit": commit(), "share": SHARE, "runs": report})


if __name__ == "__main__":
    main()

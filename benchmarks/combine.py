"""Two runs on the same labels and a third that learns from what they agree on, beside one run of as many steps.

    python benchmarks/combine.py --labels 20 40 --seeds 1 2      # digits -> results/combine_digits.json

Every run is `dpssl run` with the preset of digits but for the steps; `--repeat` tells the first two apart. Truth scores
the labels at the end and chooses nothing. A label set that is in the file already is not run again.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from results_file import REPOSITORY, measure_missing

from dpssl.combine import start_combined
from dpssl.config import load_preset, with_values
from dpssl.constants import TRUSTED_SHARE
from dpssl.pipeline import evaluate, run_all
from dpssl.run_folder import RunFolder
from dpssl.runs import Run, start_run

FILE = REPOSITORY / "results" / "combine_digits.json"


def finished(run: Run) -> Run:
    run_all(run)
    evaluate(run)
    return run


def accuracy(folder: RunFolder) -> dict[str, float]:
    summary = folder.read_json("summary.json")
    return {"annotation": round(summary["annotation_accuracy"], 4), "test": round(summary["test_accuracy"], 4)}


def measured(folder: Path, *, n_labels: int, seed: int, steps: int, threads: int) -> dict[str, Any]:
    common = {"data": "digits", "n_labels": n_labels, "seed": seed, "device": "cpu", "threads": threads}

    def run(name: str, repeat: int, times: int) -> Run:
        values = {**common, "repeat": repeat, "steps": times * steps, "end_steps": times * steps // 4}
        config = with_values(load_preset("digits"), values)
        return finished(start_run(config, str(folder / name), progress=False))

    parts = [run("first", 0, 1), run("second", 1, 1)]
    combined = start_combined(parts, with_values(parts[0].config, {"repeat": 2}), str(folder / "combined"))
    split, truth = combined.split, combined.dataset.truth
    return {
        "parts": [accuracy(part.folder) for part in parts],
        "agreement": round(combined.folder.read_json("start/combined.json")["agreement"], 4),
        "trusted_right": round(float(np.mean(truth[split.trusted] == split.trusted_labels)), 4),
        "combined": accuracy(finished(combined).folder),
        "one_long_run": accuracy(run("long", 0, 3).folder),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[20, 40])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--steps", type=int, default=400, help="of a part's labeling functions; a quarter more of its end model"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=FILE)
    chosen = parser.parse_args(arguments)
    wanted = [{"n_labels": n_labels, "seed": seed} for seed in chosen.seeds for n_labels in chosen.labels]
    measure = partial(measured, steps=chosen.steps, threads=chosen.threads)
    measure_missing(chosen.out, wanted, measure, {"steps": chosen.steps, "trust": TRUSTED_SHARE})


if __name__ == "__main__":
    main()

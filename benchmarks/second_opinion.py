"""`dpssl run --second-method fixmatch` beside each of its two runs and beside one run of as many steps as all three.

    python benchmarks/second_opinion.py --labels 10 40 --seeds 1 2 3      # digits -> results/second_opinion_digits.json

The preset of digits but for the steps, with the classes taken for even; with `--class-prior estimated` a second run
that has lost classes is not found out. Truth scores the labels at the end and chooses nothing. A label set that is in
the file already is not run again.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from combine import accuracy
from results_file import REPOSITORY, measure_missing

from dpssl.config import load_preset, with_values
from dpssl.pipeline import evaluate
from dpssl.run_folder import RunFolder
from dpssl.runs import start_run
from dpssl.second_opinion import run_all

FILE = REPOSITORY / "results" / "second_opinion_digits.json"
ALL_THREE = 2.5  # times the steps of one: DP-SSL, FixMatch, and half as many of the run that learns from both


def measured(folder: Path, *, steps: int, method: str, long_run: bool, **of_row: Any) -> dict[str, Any]:
    def run(name: str, n_steps: int, second_method: str) -> RunFolder:
        values = {"steps": n_steps, "end_steps": n_steps // 4, "second_method": second_method, **of_row}
        config = with_values(load_preset("digits"), {"device": "cpu", "threads": 1, **values})
        started = start_run(config, str(folder / name), progress=False)
        run_all(started)
        evaluate(started)
        return started.folder

    both = run("both", steps, method)
    noted = both.read_json("start/combined.json")
    return {
        "first": accuracy(RunFolder(both.path("start/first"))),
        "second": accuracy(RunFolder(both.path("start/second"))),
        "agreement": round(noted["agreement"], 4),
        "no_say": noted["no_say"],
        "both": accuracy(both),
        "one_long_run": accuracy(run("long", round(ALL_THREE * steps), "none")) if long_run else None,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[10, 40])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=800, help="of each of the two runs; a quarter more of step 3")
    parser.add_argument("--method", default="fixmatch", help="the second run")
    parser.add_argument("--class-prior", default="uniform")
    parser.add_argument("--long-run", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, default=FILE)
    chosen = parser.parse_args(arguments)
    wanted = [
        {"n_labels": n_labels, "seed": seed, "class_prior": chosen.class_prior}
        for seed in chosen.seeds
        for n_labels in chosen.labels
    ]
    measure = partial(measured, steps=chosen.steps, method=chosen.method, long_run=chosen.long_run)
    measure_missing(chosen.out, wanted, measure, {"steps": chosen.steps, "second_method": chosen.method})


if __name__ == "__main__":
    main()

"""`dpssl run --second-method fixmatch` beside each of its two runs and beside one run of as many steps as all three.

    python benchmarks/second_opinion.py --labels 10 40 --seeds 1 2 3      # digits -> results/second_opinion_digits.json

The preset of digits but for the steps, with the classes taken for even; with `--class-prior estimated` a second run
that has lost classes is not found out. Truth scores the labels at the end and chooses nothing. A label set that is in
the file already is not run again.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from combine import accuracy
from results_file import REPOSITORY, commit, write_results

from dpssl.config import load_preset, with_values
from dpssl.pipeline import evaluate
from dpssl.run_folder import RunFolder
from dpssl.runs import start_run
from dpssl.second_opinion import run_all

FILE = REPOSITORY / "results" / "second_opinion_digits.json"
ALL_THREE = 2.5  # times the steps of one: DP-SSL, FixMatch, and half as many of the run that learns from both


def measured(n_labels: int, seed: int, chosen: argparse.Namespace, folder: Path) -> dict[str, Any]:
    common = {"n_labels": n_labels, "seed": seed, "device": "cpu", "threads": 1, "class_prior": chosen.class_prior}

    def run(name: str, n_steps: int, second_method: str) -> RunFolder:
        values = {**common, "steps": n_steps, "end_steps": n_steps // 4, "second_method": second_method}
        started = start_run(with_values(load_preset("digits"), values), str(folder / name), progress=False)
        run_all(started)
        evaluate(started)
        return started.folder

    both = run("both", chosen.steps, chosen.method)
    noted = both.read_json("start/combined.json")
    return {
        "n_labels": n_labels,
        "seed": seed,
        "first": accuracy(RunFolder(both.path("start/first"))),
        "second": accuracy(RunFolder(both.path("start/second"))),
        "agreement": round(noted["agreement"], 4),
        "no_say": noted["no_say"],
        "both": accuracy(both),
        "one_long_run": accuracy(run("long", round(ALL_THREE * chosen.steps), "none")) if chosen.long_run else None,
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
    rows = json.loads(chosen.out.read_text())["rows"] if chosen.out.exists() else []
    for seed in chosen.seeds:
        for n_labels in chosen.labels:
            if any((row["n_labels"], row["seed"]) == (n_labels, seed) for row in rows):
                continue
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measured(n_labels, seed, chosen, Path(folder)))
            print(rows[-1], flush=True)
            asked = {"steps": chosen.steps, "second_method": chosen.method, "class_prior": chosen.class_prior}
            write_results(chosen.out, {"commit": commit(), **asked, "rows": rows})


if __name__ == "__main__":
    main()

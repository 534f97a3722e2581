"""What each deviation from the paper is worth on digits, one switch at a time -> results/switches_digits.json.

    python benchmarks/switches.py [--seeds 1 2 3 4 5] [--only "abstain-view weak"] [--steps 900] [--end-steps 300]

Every row is a `dpssl run` on scikit-learn's digits with 40 labels, a label seed and one thread; rows that the file has
already are kept. The last lines compare every switch with the preset on the same label seeds. docs/method.md says which
paragraph of the paper a switch belongs to. Nothing is chosen by these figures: they say what a choice costs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from results_file import REPOSITORY, measure_missing

from dpssl.constants import THREADS_WAIT

SWITCHES: dict[str, tuple[str, ...]] = {
    "preset": (),
    "abstain-view weak": ("--abstain-view", "weak"),
    "specialist-share 0.3": ("--specialist-share", "0.3"),
    "specialist-share 0.7": ("--specialist-share", "0.7"),
    "backbone-gradient mean": ("--backbone-gradient", "mean"),
    "backbone-gradient sum": ("--backbone-gradient", "sum"),
    "alignment": ("--alignment", "true"),
    "final-lr-fraction 0.195": ("--final-lr-fraction", "0.19509"),
    "fresh-statistics false": ("--fresh-statistics", "false"),
    "label-model paper": ("--label-model", "paper"),
    "use-confidence false": ("--use-confidence", "false"),
    "end-uncovered prior": ("--end-uncovered", "prior"),
    "end-view weak": ("--end-view", "weak"),
    "end-start scratch": ("--end-start", "scratch"),
    "end-unlabeled-ratio 1": ("--end-unlabeled-ratio", "1"),
}
KEPT = (
    "annotation_accuracy",
    "annotation_log_loss",
    "majority_vote_accuracy",
    "test_accuracy",
    "coverage",
)


def measure(folder: Path, switch: str, seed: int, steps: int, end_steps: int) -> dict[str, Any]:
    """One run as a user types it."""
    out = folder / "run"
    budget = ("--seed", seed, "--steps", steps, "--end-steps", end_steps, "--threads", 1, "--out", out)
    command = [sys.executable, "-m", "dpssl", "run", *map(str, budget), *SWITCHES[switch]]
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **THREADS_WAIT}
    )
    summary = json.loads((out / "summary.json").read_text())
    figures = {name: round(summary[name], 5) for name in KEPT if summary.get(name) is not None}
    return {**figures, "specialists_per_class": summary["specialists_per_class"]}


def shown(rows: Sequence[dict[str, Any]], figure: str) -> str:
    """Each switch's mean, and its mean difference from the preset on the same label seeds with its standard error."""
    by_seed = {switch: {row["seed"]: row[figure] for row in rows if row["switch"] == switch} for switch in SWITCHES}
    lines = []
    for switch, found in by_seed.items():
        gaps = [100 * (value - by_seed["preset"][seed]) for seed, value in found.items() if seed in by_seed["preset"]]
        if not gaps:
            continue
        error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else float("nan")
        mean = 100 * statistics.mean(found.values())
        lines.append(f"{switch:<26} {mean:6.2f}  {statistics.mean(gaps):+6.2f} ± {error:4.2f}  ({len(gaps)})")
    return f"{figure}\n" + "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--only", nargs="+", choices=SWITCHES, default=list(SWITCHES), metavar="SWITCH")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--end-steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "switches_digits.json")
    chosen = parser.parse_args(arguments)
    wanted = [{"seed": seed, "switch": switch} for seed in chosen.seeds for switch in chosen.only]
    budget = {"steps": chosen.steps, "end_steps": chosen.end_steps}
    noted = {"data": "digits, 40 labels", "preset": "digits", "device": "cpu, 1 thread", **budget}
    measure_missing(chosen.out, wanted, partial(measure, **budget), noted)
    rows = json.loads(chosen.out.read_text())["rows"]
    for figure in ("annotation_accuracy", "test_accuracy"):
        print(shown(rows, figure))


if __name__ == "__main__":
    main()

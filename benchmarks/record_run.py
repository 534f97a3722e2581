"""A finished run as one file of results: what it was, how it went, what each label model makes of its votes.

    dpssl run --data cifar10 --preset cifar10-wrn-28-2 --device cuda --seed 1 --out runs/cifar10_40_seed1
    python benchmarks/record_run.py runs/cifar10_40_seed1      # -> results/cifar10_40_seed1.json

`--commit` names the code that trained it, where the run was made elsewhere. `--votes FILE` also keeps the votes of up
to 10,000 unlabelled images with their truth, as a set for `benchmarks/label_model.py`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from results_file import REPOSITORY, commit, write_results

from dpssl.config import settings_that_matter
from dpssl.metrics import vote_scores
from dpssl.paper.figures import label_model_figures
from dpssl.pipeline import SUMMARY, VOTES
from dpssl.report.lf_statistics import describe_lfs
from dpssl.runs import Run, open_run

N_LINES = 60  # of a stage's curve
N_KEPT = 10_000  # images


def recorded(run: Run, measured_at: str) -> dict[str, Any]:
    figures = run.folder.read_json(SUMMARY) | label_model_figures(run)
    config = settings_that_matter(run.config)
    config |= {name: Path(config[name]).name for name in ("data", "backbone_weights")}  # not where they lay
    return {
        "label_seed": run.config.run.seed,
        "n_labels": len(run.split.labeled),
        "commit": measured_at,
        "device": figures.pop("device"),
        "minutes": figures.pop("minutes"),
        "minutes_per_step": figures.pop("minutes_per_step"),
        "figures": {**figures, **vote_figures(run)},
        "config": config,
        "curve": thinned(list(run.folder.read_jsonl("metrics.jsonl"))),
    }


def vote_figures(run: Run) -> dict[str, Any]:
    """How often the labeling functions are right where they speak, and speak where they should."""
    if not run.folder.has(VOTES):
        return {}
    file, rows = run.folder.read_votes(run.dataset.ids), run.split.unlabeled
    scores = vote_scores(file.votes[rows], run.dataset.truth[rows], file.specialties)
    return {**scores, "n_lost": len(describe_lfs(file).lost)}


def thinned(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every stage's curve in at most N_LINES lines, the last among them."""
    kept = []
    for stage in dict.fromkeys(line["stage"] for line in lines):
        curve = [line for line in lines if line["stage"] == stage]
        every = -(-len(curve) // N_LINES)
        kept += curve[::-1][::every][::-1]
    return kept


def keep_votes(run: Run, place: Path) -> None:
    file, rows = run.folder.read_votes(run.dataset.ids), run.split.unlabeled
    chosen = np.sort(np.random.default_rng(0).permutation(rows)[:N_KEPT])
    np.savez_compressed(
        place,
        votes=file.votes[chosen],
        confidence=file.confidence[chosen],
        specialties=file.specialties,
        truth=run.dataset.truth[chosen],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, help="default: results/NAME.json, by the name of the run folder")
    parser.add_argument("--commit", default="", help="of the code that trained it; default: the one checked out here")
    parser.add_argument("--votes", type=Path, help=".npz to keep votes in")
    chosen = parser.parse_args(arguments)
    run = open_run(chosen.run, writes=False, progress=False)
    report = recorded(run, chosen.commit or commit())
    write_results(chosen.out or REPOSITORY / "results" / f"{chosen.run.resolve().name}.json", report)
    if chosen.votes:
        keep_votes(run, chosen.votes)
    shown = ("annotation_accuracy", "annotation_macro_f1", "coverage", "top_500_per_class", "test_accuracy")
    print(
        "  ".join(f"{name} {report['figures'][name]:.4f}" for name in shown if report["figures"].get(name) is not None)
    )


if __name__ == "__main__":
    main()

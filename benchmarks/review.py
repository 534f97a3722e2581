"""Digits: does reviewing the 40 most useful images help more than reviewing 40 random ones? -> results/review.json.

    python benchmarks/review.py [--seeds 1 2 3 4 5] [--reviewed 40] [--steps N] [--end-steps N] [--out FILE]

For each seed one run of `dpssl run`, then two of `dpssl refine` from it: after a review of the first images of the
queue "the most useful first", and of as many drawn at random. The reviewer is an oracle who answers with the truth, for
this evaluation alone: neither the queue nor a run reads it. Accuracies are over the images without a label before the
review: all of them (reviewed ones are right by the oracle's word), and those that neither review has seen, the same
images for all three, which shows what training made of the answers.
"""

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from dpssl.constants import THREADS_WAIT

os.environ.update({**THREADS_WAIT, **os.environ})  # before torch is imported

import numpy as np
import torch
from results_file import REPOSITORY, commit, write_results

from dpssl import __version__
from dpssl.config import Config, load_preset, with_values
from dpssl.pipeline import run_all
from dpssl.refine import start_refined
from dpssl.report.contents import read_contents
from dpssl.review.corrections import CorrectionLog
from dpssl.review.queue import Queue
from dpssl.runs import Run, open_run, start_run

REVIEWS = ("useful", "random")
Scores = dict[str, float]


def measure(config: Config, n_reviewed: int, refine_steps: int) -> dict[str, Scores]:
    """Scores before, after a review of useful images, and after one of random images."""
    with tempfile.TemporaryDirectory() as place:
        first = start_run(config, f"{place}/first", progress=False)
        run_all(first)
        before = annotations(first)
        queue = Queue(read_contents(first.folder, first.config, {}, first.dataset, first.split))
        draws = np.random.default_rng(config.run.seed)
        chosen = {
            "useful": queue.useful[:n_reviewed],
            "random": draws.choice(first.split.unlabeled, n_reviewed, replace=False),
        }
        unseen = np.setdiff1d(first.split.unlabeled, np.concatenate(list(chosen.values())))
        scores = {"before": score(first, before, unseen)}
        for review in REVIEWS:
            copy = shutil.copytree(first.folder.folder, f"{place}/{review}")
            answer_with_truth(copy, first, queue, chosen[review])
            refined = start_refined(
                open_run(copy, writes=False, progress=False), f"{place}/{review}-refined", refine_steps
            )
            run_all(refined)
            after = np.where(refined.split.given_labels >= 0, refined.split.given_labels, annotations(refined))
            scores[review] = score(first, after, unseen) | {
                "wrong_among_reviewed": float((before[chosen[review]] != first.dataset.truth[chosen[review]]).mean())
            }
    return scores


def annotations(run: Run) -> np.ndarray:
    """(n,) the label of each image by its soft label, -1 without a vote."""
    file = run.folder.read_soft_labels(run.dataset.ids)
    return np.where(file.covered, file.soft_labels.argmax(axis=1), -1)


def score(first: Run, labels: np.ndarray, unseen: np.ndarray) -> Scores:
    """Evaluation only: the truth is read here and by the oracle. An image without a vote counts as wrong."""
    right = labels == first.dataset.truth
    return {"all": float(right[first.split.unlabeled].mean()), "not_reviewed": float(right[unseen].mean())}


def answer_with_truth(folder: Path | str, first: Run, queue: Queue, rows: np.ndarray) -> None:
    """The oracle: a person's place is taken by the truth, to measure what a review is worth."""
    run = open_run(folder, writes=False, progress=False)
    ids = [str(name) for name in run.dataset.ids]
    log = CorrectionLog(run.folder, ids, run.dataset.class_names, queue.labels, "oracle")
    log.decide([(int(row), int(first.dataset.truth[row])) for row in rows])
    log.close()


def table(results: list[dict[str, Scores]]) -> str:
    lines = [f"{'':<26} {'all %':>15} {'not reviewed %':>18} {'wrong among reviewed %':>24}"]
    for name in ("before", *REVIEWS):
        title = name if name == "before" else f"after a review, {name}"
        cells = [_mean_and_error([run[name][key] for run in results]) for key in ("all", "not_reviewed")]
        wrong = [run[name]["wrong_among_reviewed"] for run in results] if name in REVIEWS else []
        lines.append(f"{title:<26} {cells[0]:>15} {cells[1]:>18} {_mean_and_error(wrong) if wrong else '':>24}")
    for key in ("all", "not_reviewed"):
        gap = [run["useful"][key] - run["random"][key] for run in results]
        lines.append(f"useful minus random, {key.replace('_', ' ')}: {_mean_and_error(gap)} points")
    return "\n".join(lines)


def _mean_and_error(values: list[float]) -> str:
    percent = [100 * value for value in values]
    error = statistics.stdev(percent) / len(percent) ** 0.5 if len(percent) > 1 else float("nan")
    return f"{statistics.mean(percent):.2f} ± {error:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--reviewed", type=int, default=40, help="images to review")
    parser.add_argument("--steps", type=int, default=0, help="of step 1; 0 = the preset's")
    parser.add_argument("--end-steps", type=int, default=0, help="of step 3; 0 = the preset's")
    parser.add_argument("--refine-steps", type=int, default=0, help="as of `dpssl refine`")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "review.json")
    arguments = parser.parse_args()
    changed: dict[str, Any] = {"report": False}
    changed |= {name: getattr(arguments, name) for name in ("steps", "end_steps") if getattr(arguments, name)}
    preset = load_preset("digits")
    if arguments.steps:  # the first phase is no longer than the second
        limits = {name: getattr(preset.labeling, name) for name in ("mcl_min_steps", "mcl_max_steps")}
        changed |= {name: min(limit, arguments.steps) for name, limit in limits.items()}
    config = with_values(preset, changed)
    results = []
    for seed in arguments.seeds:
        started = time.perf_counter()
        results.append(measure(with_values(config, {"seed": seed}), arguments.reviewed, arguments.refine_steps))
        shown = "  ".join(
            f"{name} {100 * found['all']:.2f} / {100 * found['not_reviewed']:.2f}"
            for name, found in results[-1].items()
        )
        print(f"seed {seed}  all / not reviewed: {shown}  {(time.perf_counter() - started) / 60:.1f} min", flush=True)
    print("\n" + table(results))
    report = {
        "what": f"scikit-learn digits, {config.data.n_labels} labels, {arguments.reviewed} reviewed by the truth",
        "seeds": arguments.seeds,
        "settings": {"preset": "digits", **changed, "refine_steps": arguments.refine_steps or "a quarter"},
        "versions": {"dpssl": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "commit": commit(),
        "device": f"cpu, {torch.get_num_threads()} threads",
        "results": results,
    }
    write_results(arguments.out, report)
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()

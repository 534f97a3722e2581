"""Our label model beside other packages' on the same votes, all in one run -> results/label_model.json.

    python benchmarks/label_model.py [--quick] [--parts synthetic real scale] [--seeds 0 1 2 3 4] [--out FILE]

Synthetic votes come from ../shared/tools/votes.py, beside the checkout, real ones from ../shared/data/votes. Every
model sees the same votes; the 40 (4 per class) labelled rows of the synthetic sets go to the models that take labels,
the truth of the others to none. Peers: the `bench` extra (snorkel, crowd-kit, cleanlab).
FlyingSquid is not on the package registry; our vectorised one-versus-all triplets stand for it and are named so.

Seconds are CPU seconds of the process (all threads), so that other work on the machine does not count; what to read
is `times faster than Snorkel`, from the same run. Peak memory is what numpy and Python allocated above the start
(tracemalloc, from a run of its own that is not timed); torch's tensors escape it, so Snorkel's is too low.
"""

import argparse
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import numpy as np

from dpssl import LabelModel, __version__

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"
OURS, SNORKEL, SPECIALIST, DAWID_SKENE = "dpssl", "snorkel", "dpssl: specialist-vote", "dpssl: dawid-skene"
PEER_PACKAGES = ("snorkel", "crowd-kit", "cleanlab", "numpy", "torch")
Votes = dict[str, Any]
Model = Callable[[Votes], np.ndarray]  # votes in, soft labels (n, C) of the unlabelled rows out


def load_votes_module() -> Any:
    """../shared/tools/votes.py, which draws and scores the synthetic votes."""
    path = SHARED / "tools" / "votes.py"
    if not path.is_file():
        raise SystemExit(f"{path} is not there: this benchmark needs the shared votes beside the checkout")
    spec = importlib.util.spec_from_file_location("shared_votes", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------------------------------------------------- models


def ours(variant: str = "adaptive") -> Model:
    """One of our variants; labelled rows, where there are any, are appended with their labels."""

    def run(data: Votes) -> np.ndarray:
        votes, y = data["L"], None
        if "Ll" in data:
            votes = np.concatenate([data["L"], data["Ll"]])
            y = np.concatenate([np.full(len(data["L"]), -1), data["yl"]])
        return LabelModel(data["n_classes"], variant).fit(votes, y=y).predict_proba(data["L"])

    return run


def snorkel(data: Votes) -> np.ndarray:
    """Snorkel's LabelModel, 500 epochs."""
    from snorkel.labeling.model import LabelModel as SnorkelModel

    votes = data["L"].astype(np.int64)
    model = SnorkelModel(cardinality=data["n_classes"], verbose=False)
    model.fit(votes, n_epochs=data.get("epochs", 500), seed=0, progress_bar=False)
    return np.asarray(model.predict_proba(votes))


def crowd_kit(name: str) -> Model:
    """One of crowd-kit's aggregators; rows without a vote get the uniform distribution."""

    def run(data: Votes) -> np.ndarray:
        import pandas as pd
        from crowdkit import aggregation

        rows, lfs = np.nonzero(data["L"] >= 0)
        answers = pd.DataFrame({"task": rows, "worker": lfs, "label": data["L"][rows, lfs]})
        model = getattr(aggregation, name)()
        proba = model.fit_predict_proba(answers)
        soft = np.full((len(data["L"]), data["n_classes"]), 1.0 / data["n_classes"])
        soft[proba.index.to_numpy()] = 0.0
        soft[np.ix_(proba.index.to_numpy(), proba.columns.to_numpy())] = proba.fillna(0.0).to_numpy()
        return soft

    return run


def cleanlab(data: Votes) -> np.ndarray:
    """cleanlab's consensus label; its own method, CROWDLAB, needs a classifier's probabilities, which votes lack."""
    from cleanlab.multiannotator import get_majority_vote_label

    votes = data["L"].astype(np.float64)
    votes[votes < 0] = np.nan
    covered = ~np.isnan(votes).all(1)
    labels = np.asarray(get_majority_vote_label(votes[covered], verbose=False))
    soft = np.full((len(votes), data["n_classes"]), 1.0 / data["n_classes"])
    soft[covered] = np.eye(data["n_classes"])[labels.astype(np.int64)]
    return soft


MODELS: dict[str, Model] = {
    OURS: ours(),
    "dpssl: majority": ours("majority"),
    SPECIALIST: ours("specialist-vote"),
    DAWID_SKENE: ours("dawid-skene"),
    "dpssl: FlyingSquid's triplets": ours("triplet"),
    SNORKEL: snorkel,
    "crowd-kit DawidSkene": crowd_kit("DawidSkene"),
    "crowd-kit OneCoin": crowd_kit("OneCoinDawidSkene"),
    "crowd-kit MACE": crowd_kit("MACE"),
    "cleanlab majority": cleanlab,
}
SLOW = {"crowd-kit MACE", "crowd-kit OneCoin", "cleanlab majority"}  # one seed of one size is enough


# ------------------------------------------------------------------------------------------------------------ scoring


def timed(model: Model, data: Votes, with_memory: bool) -> dict[str, Any]:
    """Soft labels, CPU seconds, and peak allocated MB (None when not asked for)."""
    peak = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if with_memory:
            tracemalloc.start()
            model(data)
            peak = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
        started = time.process_time()
        soft = model(data)
        return {"soft": soft, "seconds": time.process_time() - started, "peak_mb": peak}


def fractional_accuracy(soft: np.ndarray, y: np.ndarray) -> float:
    """Accuracy where y is known; each of m tied classes counts 1/m."""
    known = np.flatnonzero(y >= 0)
    tied = soft[known] >= soft[known].max(1, keepdims=True) - 1e-9
    return float((tied[np.arange(len(known)), y[known]] / tied.sum(1)).mean())


def run_synthetic(shared: Any, sizes: list[tuple[int, int]], seeds: list[int], epochs: int) -> list[dict[str, Any]]:
    """One row per size, seed and model."""
    rows = []
    for n_rows, n_classes in sizes:
        for seed in seeds:
            data = shared.make_votes(n_rows, 50, n_classes, seed=seed) | {"n_classes": n_classes, "epochs": epochs}
            for name, model in MODELS.items():
                first = seed == seeds[0]
                if not _runs(name, n_rows, n_classes, first):
                    continue
                result = timed(model, data, with_memory=first and name == OURS)
                scores = shared.score(result["soft"], data["L"], data["y"])
                row = {"rows": n_rows, "classes": n_classes, "seed": seed, "model": name}
                row |= {key: float(scores[key]) for key in ("acc", "f1", "worst", "logloss", "ece")}
                row |= {"seconds": result["seconds"], "peak_mb": result["peak_mb"]}
                rows.append(row)
                print(_line(row), flush=True)
    return rows


def _runs(name: str, n_rows: int, n_classes: int, first: bool) -> bool:
    """Peers that take minutes run on the first seed; at 100 classes or 500,000 rows only what the targets compare."""
    large = n_rows > 100_000 or n_classes > 20
    if large and name not in (OURS, SPECIALIST, DAWID_SKENE, SNORKEL):
        return False
    if n_classes > 20 and name == DAWID_SKENE:
        return first
    return first or not (name in SLOW or (large and name == SNORKEL))


def _line(row: dict[str, Any]) -> str:
    memory = "" if row["peak_mb"] is None else f"  {row['peak_mb']:.0f} MB"
    return (
        f"{row['rows']:>7} x 50, C = {row['classes']:<3} seed {row['seed']}  {row['model']:<30} "
        f"acc {100 * row['acc']:.2f}  log-loss {row['logloss']:.3f}  ECE {row['ece']:.3f}  "
        f"{row['seconds']:.1f} s{memory}"
    )


def real_sets() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, votes and gold labels of the shared sets; those of our own runs are in benchmarks/own_votes.py."""
    for path in sorted((SHARED / "data" / "votes").glob("*.npz")):
        with np.load(path) as archive:
            yield path.stem, archive["L"], archive["y"]


def run_real(epochs: int) -> list[dict[str, Any]]:
    """One row per set and model; no gold label is used in fitting."""
    rows = []
    for set_name, found, truth in real_sets():
        votes, y = found.astype(np.int16), truth.astype(np.int64)
        data = {"L": votes, "n_classes": int(max(votes.max(), y.max())) + 1, "epochs": epochs}
        for name, model in MODELS.items():
            if name in SLOW and len(votes) > 10_000:
                continue
            accuracy = fractional_accuracy(timed(model, data, with_memory=False)["soft"], y)
            rows.append({"set": set_name, "model": name, "acc": accuracy})
        best = max((row for row in rows if row["set"] == set_name), key=lambda row: row["acc"])
        mine = next(row for row in rows if row["set"] == set_name and row["model"] == OURS)
        print(f"{set_name:<40} ours {mine['acc']:.3f}  best {best['acc']:.3f} ({best['model']})", flush=True)
    return rows


def run_scale(shared: Any, sizes: list[int]) -> list[dict[str, Any]]:
    """Fit and predict on memory-mapped votes in a process of its own, whose peak resident memory is read."""
    rows = []
    block = shared.make_votes(500_000, 50, 10, seed=0)["L"]
    for n_rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "votes.npy"
            votes = np.lib.format.open_memmap(path, mode="w+", dtype=np.int8, shape=(n_rows, 50))
            rng = np.random.default_rng(0)
            for start in range(0, n_rows, len(block)):
                stop = min(start + len(block), n_rows)
                votes[start:stop] = block[rng.permutation(len(block))[: stop - start]]
                noisy = rng.random((stop - start, 50)) < 0.01  # so that rows stay distinct as n grows
                votes[start:stop][noisy] = -1
            votes.flush()
            del votes
            command = [sys.executable, __file__, "--scale-worker", str(path)]
            row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append({"rows": n_rows} | row)
        print(f"{n_rows:>11,} x 50 memory-mapped: {row['seconds']:.0f} s, peak {row['peak_rss_mb']:.0f} MB", flush=True)
    return rows


def scale_worker(path: Path) -> None:
    """Fit on a memory map, then predict block by block and keep nothing."""
    from dpssl.label_model.adaptive import fit_adaptive

    votes = np.load(path, mmap_mode="r")
    started = time.process_time()
    fit = fit_adaptive(votes, 10)
    fitted = time.process_time()
    for start in range(0, len(votes), 100_000):
        fit.predict_log_proba(votes[start : start + 100_000])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    done = time.process_time()
    print(json.dumps({"fit_seconds": fitted - started, "seconds": done - started, "peak_rss_mb": peak}))


# ------------------------------------------------------------------------------------------------------------- report


def _mean_of_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def summarize_synthetic(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the seeds, with how many times faster than Snorkel each model was on the seeds they share."""
    summary = []
    for size in sorted({(row["rows"], row["classes"]) for row in rows}):
        here = [row for row in rows if (row["rows"], row["classes"]) == size]
        snorkel_seconds = {row["seed"]: row["seconds"] for row in here if row["model"] == SNORKEL}
        for name in MODELS:
            mine = [row for row in here if row["model"] == name]
            if not mine:
                continue
            ratios = [snorkel_seconds[row["seed"]] / row["seconds"] for row in mine if row["seed"] in snorkel_seconds]
            line = {"rows": size[0], "classes": size[1], "model": name, "seeds": len(mine)}
            line |= {
                key: _mean_of_known([row[key] for row in mine]) for key in ("acc", "f1", "worst", "logloss", "ece")
            }
            line["times_faster_than_snorkel"] = float(np.mean(ratios)) if ratios else None
            line["seconds"] = float(np.mean([row["seconds"] for row in mine]))
            line["peak_mb"] = mine[0]["peak_mb"]
            summary.append(line)
    return summary


def print_table(summary: list[dict[str, Any]], real: list[dict[str, Any]]) -> None:
    """The synthetic means and the real accuracies."""
    for line in summary:
        faster = line["times_faster_than_snorkel"]
        ratio = "" if faster is None else f"{faster:.1f} x Snorkel's speed"
        print(
            f"{line['rows']:>7} C={line['classes']:<3} {line['model']:<30} {line['seeds']} seeds  "
            f"acc {100 * line['acc']:.2f}  log-loss {line['logloss']:.3f}  ECE {line['ece']:.3f}  "
            f"{line['seconds']:.1f} s  {ratio}"
        )
    sets = list(dict.fromkeys(row["set"] for row in real))
    for name in MODELS:
        by_set = {row["set"]: row["acc"] for row in real if row["model"] == name}
        if by_set:
            mean = f"{np.mean(list(by_set.values())):.3f}" if len(by_set) == len(sets) else "  -  "
            cells = "  ".join(f"{by_set[s]:.3f}" if s in by_set else "  -  " for s in sets)
            print(f"{name:<30} mean {mean}  {cells}")


def versions() -> dict[str, str]:
    """Versions of everything compared."""
    found = {"dpssl": __version__, "python": platform.python_version()}
    for name in PEER_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def main() -> None:
    """Run the parts asked for, print the tables, and write the JSON file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--parts", nargs="+", choices=["synthetic", "real", "scale"], default=["synthetic", "real", "scale"]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument(
        "--sizes", nargs="+", default=["50000x10", "500000x10", "50000x100"], help="synthetic sets, ROWSxCLASSES"
    )
    parser.add_argument("--quick", action="store_true", help="one small size, one seed, our models only")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "label_model.json")
    parser.add_argument("--scale-worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scale_worker:
        scale_worker(options.scale_worker)
        return
    shared = load_votes_module()
    sizes = [(int(rows), int(classes)) for rows, classes in (size.split("x") for size in options.sizes)]
    scale, epochs = [1_000_000, 5_000_000, 20_000_000], 500
    if options.quick:
        sizes, scale, epochs, options.seeds = [(2_000, 10)], [20_000, 40_000], 10, options.seeds[:1]
        for name in [name for name in MODELS if not name.startswith("dpssl")]:
            del MODELS[name]
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.is_file() else {}
    if "synthetic" in options.parts:
        kept = [row for row in results.get("synthetic", []) if (row["rows"], row["classes"]) not in sizes]
        results["synthetic"] = kept + run_synthetic(shared, sizes, options.seeds, epochs)
        results["synthetic_mean"] = summarize_synthetic(results["synthetic"])
    if "real" in options.parts:
        results["real"] = run_real(epochs)
    if "scale" in options.parts:
        results["scale"] = run_scale(shared, scale)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    results |= {"versions": versions(), "commit": commit.stdout.strip(), "cpu_cores": os.cpu_count()}
    print_table(results.get("synthetic_mean", []), results.get("real", []))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()

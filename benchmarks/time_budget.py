"""What a time budget on this machine makes of a folder of pictures -> results/time_budget.json.

    python benchmarks/time_budget.py cifar10 fashion-mnist digits@40 --minutes 5
    python benchmarks/time_budget.py photos.npz --flags "" "--warm-steps 0"      # two runs of the set
    python benchmarks/time_budget.py svhn --n-images 27000 --flags "--device cuda"

Takes 3,000 images of each set (`@40` brings them to 40 pixels), writes them as PNG files with a labels.csv of four a
class, and types `dpssl run --data FOLDER --labels labels.csv --max-minutes M`, as users do. Beside it scikit-learn's
logistic regression and label spreading on the same images and labels. Truth scores the labels and nothing else.
"""

import argparse
import csv
import json
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from results_file import REPOSITORY, commit, write_results
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from dpssl.data.readers import load_dataset

N_IMAGES, PER_CLASS, N_COMPONENTS = 3000, 4, 50


class Pictures(NamedTuple):
    images: np.ndarray  # (n, side, side, channels) uint8
    truth: np.ndarray  # (n,)
    labeled: np.ndarray  # positions


def choose(source: str, seed: int, n_images: int = N_IMAGES) -> Pictures:
    name, _, side = source.partition("@")
    dataset, random = load_dataset(name), np.random.default_rng(seed)
    rows = random.permutation(len(dataset.images))[:n_images]
    images, truth = dataset.images[rows], np.asarray(dataset.truth)[rows]
    if side:
        size = (int(side), int(side))
        images = np.stack([np.asarray(as_picture(image).resize(size, Image.Resampling.BICUBIC)) for image in images])
        images = images.reshape(len(images), *size, -1)
    labeled = [random.choice(np.flatnonzero(truth == label), PER_CLASS, replace=False) for label in np.unique(truth)]
    return Pictures(images, truth, np.sort(np.concatenate(labeled)))


def as_picture(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def run_dpssl(pictures: Pictures, minutes: float, flags: str, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder, table, out = Path(place) / "pictures", Path(place) / "labels.csv", Path(place) / "run"
        folder.mkdir()
        for i, image in enumerate(pictures.images):
            as_picture(image).save(folder / f"{i:05d}.png")
        with table.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["path", "label"])
            lines.writerows([f"{i:05d}.png", f"class {pictures.truth[i]}"] for i in pictures.labeled)
        command = [sys.executable, "-m", "dpssl", "run", "--data", folder, "--labels", table, "--out", out]
        command += ["--max-minutes", minutes, "--seed", seed, *shlex.split(flags)]
        started = time.perf_counter()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
        if done.returncode:
            raise SystemExit(done.stderr)
        with (out / "soft_labels.csv").open(newline="") as file:
            labels = {int(Path(line["id"]).stem): line["label"] for line in csv.DictReader(file)}
        found = np.array([labels[i] == f"class {pictures.truth[i]}" for i in range(len(pictures.truth))])
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = {stage: max(line["step"] for line in lines if line["stage"] == stage) for stage in ("warm", "lfs", "end")
             if any(line["stage"] == stage for line in lines)}  # fmt: skip
    plan = [line.strip() for line in done.stderr.splitlines() if line.startswith(("plan", "  "))]
    return {"plan": " ".join(plan[:2]), "steps": steps, "seconds": seconds, "soft_labels": _score(found, pictures)}


def run_sklearn(pictures: Pictures) -> dict[str, float]:
    flat = pictures.images.reshape(len(pictures.images), -1) / 255
    features = PCA(N_COMPONENTS, random_state=0).fit_transform(flat)
    given = np.full(len(flat), -1)
    given[pictures.labeled] = pictures.truth[pictures.labeled]
    plain = LogisticRegression(max_iter=1000).fit(flat[pictures.labeled], pictures.truth[pictures.labeled])
    spread = LabelSpreading(kernel="knn", n_neighbors=7, max_iter=100).fit(features, given)
    answers = {"logistic_regression": plain.predict(flat), "label_spreading": spread.transduction_}
    return {name: _score(found == pictures.truth, pictures) for name, found in answers.items()}


def machine() -> str:
    here = f"{platform.machine()}, {platform.processor() or 'CPU'}"
    return f"{here}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else here


def _score(right: np.ndarray, pictures: Pictures) -> float:
    return round(float(np.delete(right, pictures.labeled).mean()), 4)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="as --data of dpssl run, perhaps with @SIDE")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--n-images", type=int, default=N_IMAGES)
    parser.add_argument("--seed", type=int, default=3, help="of the images, the labels and the run")
    parser.add_argument("--flags", nargs="*", default=[""], help="more flags of dpssl run; one run for each string")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "time_budget.json")
    chosen = parser.parse_args(arguments)
    rows = []
    for source in chosen.sets:
        pictures = choose(source, chosen.seed, chosen.n_images)
        others = run_sklearn(pictures)
        for flags in chosen.flags:
            found = run_dpssl(pictures, chosen.minutes, flags, chosen.seed)
            rows.append({"set": Path(source).stem, "n_images": chosen.n_images, "flags": flags, **found, **others})
            shown = "  ".join(f"{name} {100 * rows[-1][name]:.1f}" for name in ("soft_labels", *others))
            print(f"{source:<20} {flags:<18} {shown}  {found['steps']}  {found['seconds']:.0f} s", flush=True)
            write_results(chosen.out, {"commit": commit(), "machine": machine(), "minutes": chosen.minutes,
                                       "seed": chosen.seed, "rows": rows})  # fmt: skip


if __name__ == "__main__":
    main()

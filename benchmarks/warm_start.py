"""What a backbone has learnt from images alone, watched with the truth -> results/warm_start.json and the weights.

    python benchmarks/warm_start.py --data cifar10 --weights warm.safetensors --set warm_steps=20000
    python benchmarks/warm_start.py --weights byol.safetensors --set 'warm_method="byol"' --out byol.json
    dpssl run --data cifar10 --preset cifar10-wrn-28-2 --backbone-weights warm.safetensors

After each window two questions to the averaged weights' features, whose answers are written down and used for nothing
else: how many images have the class of most of their 20 nearest neighbours, and how many that of the nearest class
centre, where a centre is the mean of the four labelled images of a class (mean over five label seeds).
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_file import REPOSITORY, commit, write_results
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from dpssl.config import Config, settings_that_matter, with_values
from dpssl.data.batches import ImageBank
from dpssl.data.readers import load_dataset
from dpssl.data.split import make_split
from dpssl.nets.pooling import average_pool
from dpssl.training.precision import pick_device
from dpssl.training.watch import Watch
from dpssl.warm_start import train_warm_start

COMMON = {"bn_momentum": 0.01, "compile": True, "window": 2000, "n_labels": 40}
N_NEIGHBORS, N_ASKED, CHUNK = 20, 5000, 1000
LABEL_SEEDS = range(1, 6)


class Observer(Watch):
    def __init__(self, bank: ImageBank, truth: Tensor, labeled: Sequence[np.ndarray]) -> None:
        super().__init__(progress=False)
        self.bank, self.truth, self.labeled, self.curve = bank, truth, labeled, list[dict[str, float]]()

    def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
        network, optimizer = state.modules["network"], state.optimizer
        optimizer.use_average()
        found = features(network.backbone.eval(), self.bank)
        network.train()
        optimizer.use_weights()
        near_centers = [center_accuracy(found, self.truth, rows) for rows in self.labeled]
        line = {"step": step, "minutes": round(self.minutes(), 2), **metrics,
                "neighbors": neighbor_accuracy(found, self.truth), "centers": np.mean(near_centers)}  # fmt: skip
        self.curve.append({name: round(float(value), 4) for name, value in line.items()})
        print(json.dumps(self.curve[-1]), flush=True)


@torch.no_grad()
def features(backbone: nn.Module, bank: ImageBank) -> Tensor:
    """Pooled features (n, D) of length 1."""
    parts = [average_pool(backbone(bank.network_input(images))) for images in bank.chunks(CHUNK)]
    return F.normalize(torch.cat(parts).float(), dim=1)


def neighbor_accuracy(found: Tensor, truth: Tensor) -> float:
    """Share of the first images whose nearest others are mostly of their class."""
    right = []
    for chunk in torch.arange(min(N_ASKED, len(found)), device=found.device).split(CHUNK):
        similarity = found[chunk] @ found.T
        similarity[torch.arange(len(chunk)), chunk] = -2
        nearest = truth[similarity.topk(N_NEIGHBORS).indices]
        right.append(nearest.mode(1).values == truth[chunk])
    return float(torch.cat(right).float().mean())


def center_accuracy(found: Tensor, truth: Tensor, rows: np.ndarray) -> float:
    """Share of all images that are nearest to their class's centre, the mean of the images at `rows`."""
    chosen = torch.from_numpy(rows).to(found.device)
    members = F.one_hot(truth[chosen]).float()  # (n_labels, C)
    centers = F.normalize(members.T @ found[chosen], dim=1)
    return float(((found @ centers.T).argmax(1) == truth).float().mean())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10", help="as of dpssl run")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings, as numbers or words")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--weights", type=Path, help="write the backbone here, for --backbone-weights")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "warm_start.json")
    chosen = parser.parse_args(arguments)
    device = pick_device(chosen.device)
    given = {name: json.loads(value) for name, _, value in (item.partition("=") for item in chosen.set)}
    values = {**COMMON, "warm_steps": 20000, **given, "data": chosen.data, "device": device.type}
    config = with_values(Config(), {**values, "steps": values["warm_steps"]})
    # the split of one label seed says which images are for training; the warm start sees them all, and no label
    loaded = load_dataset(chosen.data)
    n_labels, held_out = config.data.n_labels, config.data.test_fraction
    dataset = make_split(loaded, n_labels, LABEL_SEEDS[0], held_out)[0]
    labeled = [make_split(loaded, n_labels, seed, held_out)[1].labeled for seed in LABEL_SEEDS]
    bank = ImageBank.from_numpy(dataset.images, device)
    watch = Observer(bank, torch.from_numpy(np.asarray(dataset.truth)).long().to(device), labeled)
    started = time.perf_counter()
    backbone = train_warm_start(bank, torch.arange(len(bank)), config, watch)
    minutes = (time.perf_counter() - started) / 60
    if chosen.weights:
        save_file({name: tensor.cpu().contiguous() for name, tensor in backbone.items()}, chosen.weights)
    where = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    last = watch.curve[-1]
    print(f"neighbours {100 * last['neighbors']:.2f}  centres {100 * last['centers']:.2f}  {minutes:.1f} min")
    write_results(
        chosen.out,
        {"commit": commit(), "device": where, "minutes": round(minutes, 2), "n_neighbors": N_NEIGHBORS,
         "config": settings_that_matter(config), "curve": watch.curve},
    )  # fmt: skip


if __name__ == "__main__":
    main()

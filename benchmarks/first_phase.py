"""What the first phase of step 1 leaves of a warm start -> results/first_phase.json. Minutes on a CPU.

    python benchmarks/first_phase.py --data cifar10 --backbone-weights warm.safetensors --seeds 12

Multiple-choice learning trains the backbone on a few labelled images for 200 steps. How much the features still know is
asked of the weights themselves, their moving average has hardly moved by then, with batch statistics measured anew. Of
some training images, how many have most of their nearest others in their own class? The truth is counted with and used
for nothing else.
"""

import argparse
import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from results_file import REPOSITORY, commit, write_results
from torch import Tensor, nn
from warm_start import N_NEIGHBORS, features, neighbor_accuracy

from dpssl.config import Config, load_preset, with_values
from dpssl.data.batches import ImageBank
from dpssl.data.readers import load_dataset
from dpssl.data.split import Split, make_split
from dpssl.data.table import Dataset
from dpssl.labeling.train import STAGE_MCL, start_network, train_lfs
from dpssl.nets.lf_heads import LFNetwork
from dpssl.training.watch import Watch

ARMS: dict[str, dict[str, Any]] = {
    "feature transform": {},
    "feature transform, a tenth of the gradient": {"mcl_gradient": 0.1},
    "average pooling": {"feature_transform": False},
    "average pooling, a tenth of the gradient": {"feature_transform": False, "mcl_gradient": 0.1},
}
COMMON = {"steps": 1, "mcl_min_steps": 200, "mcl_max_steps": 200, "mcl_window": 100}
N_ASKED, CHUNK = 3000, 250


class Observer(Watch):
    """Asks the backbone after each window of the first phase."""

    def __init__(self, bank: ImageBank, truth: Tensor) -> None:
        super().__init__(progress=False)
        self.bank, self.truth, self.curve = bank, truth, list[dict[str, float]]()

    def ask(self, network: LFNetwork, step: int) -> None:
        found = features(with_fresh_statistics(network.backbone, self.bank), self.bank)
        self.curve.append({"step": step, "neighbors": round(neighbor_accuracy(found, self.truth), 4)})

    def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
        if stage == STAGE_MCL:
            self.ask(state.modules["network"], step)


@torch.no_grad()
def with_fresh_statistics(backbone: nn.Module, bank: ImageBank) -> nn.Module:
    """A copy whose running statistics are those of the images of `bank`: those of training lag behind."""
    copied = copy.deepcopy(backbone).train()
    for norm in copied.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean over the batches
    for images in bank.chunks(CHUNK):
        copied(bank.network_input(images))
    return copied.eval()


def asked(config: Config, dataset: Dataset, split: Split) -> list[dict[str, float]]:
    bank = ImageBank.from_numpy(dataset.images, torch.device("cpu"))
    few, truth = bank.with_images(dataset.images[:N_ASKED]), torch.from_numpy(dataset.truth[:N_ASKED]).long()
    watch = Observer(few, truth)
    watch.ask(start_network(config, dataset.n_classes, bank), 0)
    train_lfs(bank, torch.from_numpy(split.given_labels), dataset.n_classes, config, watch)
    return watch.curve


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10", help="as of dpssl run")
    parser.add_argument("--preset", default="cifar10-wrn-28-2", help="whose network the start is of")
    parser.add_argument("--backbone-weights", default="", help="the start; none: drawn weights")
    parser.add_argument("--n-labels", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "first_phase.json")
    chosen = parser.parse_args(arguments)
    base = with_values(
        load_preset(chosen.preset), {**COMMON, "device": "cpu", "backbone_weights": chosen.backbone_weights}
    )
    dataset, runs = load_dataset(chosen.data), list[dict[str, Any]]()
    for seed in chosen.seeds:
        trained_on, split = make_split(dataset, chosen.n_labels, seed, base.data.test_fraction)
        for name, settings in ARMS.items():
            config = with_values(base, {**settings, "seed": seed})
            runs.append({"name": name, "seed": seed, "curve": asked(config, trained_on, split)})
            print(json.dumps(runs[-1]), flush=True)
            write_results(
                chosen.out,
                {"commit": commit(), "preset": chosen.preset, "n_neighbors": N_NEIGHBORS, "n_images": N_ASKED,
                 "runs": runs},
            )  # fmt: skip


if __name__ == "__main__":
    main()

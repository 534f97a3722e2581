"""What step 1's heads make of a warm start that stays as it is -> results/frozen_start.json. Minutes on a CPU.

    python benchmarks/frozen_start.py --data cifar10 --backbone-weights warm.safetensors --seeds 1 2 11 12

The feature maps of some images are made once, and heads are trained on them from the given labels and their own sure
labels: by average pooling or the feature transform, with all classes for every LF or two classes each, with a fixed
threshold or FreeMatch's. No backbone is trained, but it shows in a minute which labels such a training begins with. In
place of strong views three of ten channels are dropped. The truth is counted with and used for nothing else.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_file import REPOSITORY, commit, write_results
from torch import Tensor, nn

from dpssl.config import Config, load_preset, with_values
from dpssl.data.batches import ImageBank
from dpssl.data.readers import load_dataset
from dpssl.data.split import make_split
from dpssl.labeling.losses import consensus
from dpssl.labeling.objective import SemiSupervised
from dpssl.labeling.train import N_START_IMAGES
from dpssl.nets.backbones import build_backbone, start_backbone
from dpssl.nets.lf_heads import LFNetwork, initialize_heads
from dpssl.nets.pooling import FeatureTransform, start_centers

ARMS: dict[str, dict[str, Any]] = {
    "average pooling, all classes": {"feature_transform": False, "mcl": False},
    "average pooling, specialists": {"feature_transform": False},
    "average pooling, specialists, adaptive threshold": {"feature_transform": False, "adaptive_threshold": True},
    "feature transform, all classes": {"mcl": False},
    "feature transform, specialists": {},
    "feature transform, specialists, adaptive threshold": {"adaptive_threshold": True},
}
COMMON = {"pseudo_labels": "consensus", "adaptive_threshold": False, "curriculum_threshold": False}
N_IMAGES, N_STEPS, N_UNLABELED, CHUNK = 6000, 700, 192, 500
DROPPED = 0.3  # of the channels
CLASSES_OF_AN_LF = 2
SUREST = 0.2


class Maps(nn.Module):
    """In place of a backbone: feature maps pass through."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.n_features = n_features

    def forward(self, maps: Tensor) -> Tensor:
        return maps


def started_backbone(config: Config, n_channels: int) -> nn.Module:
    """The backbone as training would begin with it."""
    backbone = build_backbone(config.backbone, n_channels)
    start_backbone(backbone, config.backbone, n_channels, torch.Generator().manual_seed(0))
    return backbone.eval()


@torch.no_grad()
def feature_maps(backbone: nn.Module, bank: ImageBank, rows: Tensor) -> Tensor:
    """(n, D, h, w)."""
    return torch.cat([backbone(bank.network_input(bank.take(chunk))) for chunk in rows.split(CHUNK)])


def drawn_specialties(n_lfs: int, n_classes: int, generator: torch.Generator) -> Tensor:
    """(K, C): each LF has CLASSES_OF_AN_LF classes, each class about as many LFs, as the first phase leaves them."""
    n_rounds = -(-n_lfs * CLASSES_OF_AN_LF // n_classes)
    drawn = torch.cat([torch.randperm(n_classes, generator=generator) for _ in range(n_rounds)])
    chosen = drawn[: n_lfs * CLASSES_OF_AN_LF].view(n_lfs, CLASSES_OF_AN_LF)
    return torch.zeros(n_lfs, n_classes, dtype=torch.bool).scatter(1, chosen, True)


def network_on(maps: Tensor, config: Config, n_classes: int, generator: torch.Generator) -> LFNetwork:
    """Untrained heads on maps (n, D, h, w), each LF with its drawn classes."""
    settings = config.labeling
    network = LFNetwork(
        Maps(maps.shape[1]),
        settings.n_lfs,
        n_classes,
        settings.feature_transform,
        settings.lf_feature_norm,
        settings.sharpness_range,
        settings.center_rate,
    )
    initialize_heads(network.heads, generator)
    network.abstains = settings.mcl
    if settings.mcl:
        network.specialties.copy_(drawn_specialties(settings.n_lfs, n_classes, generator))
    if isinstance(network.pooling, FeatureTransform):
        start_centers(network.pooling, maps[:N_START_IMAGES], settings.assignment_entropy, generator)
    return network


def train(config: Config, labeled: Tensor, labels: Tensor, maps: Tensor, n_classes: int) -> LFNetwork:
    """Heads on maps that stay as they are: Eq. 5 on the labelled ones, the consensus' sure labels on the others."""
    settings, generator = config.labeling, torch.Generator().manual_seed(config.run.seed)
    network = network_on(maps, config, n_classes, generator)
    objective = SemiSupervised(network, settings, torch.full((n_classes,), 1 / n_classes))
    optim = config.optim
    optimizer = torch.optim.SGD(
        network.parameters(), optim.learning_rate, optim.momentum, weight_decay=optim.weight_decay, nesterov=True
    )
    for _ in range(N_STEPS):
        weak = maps[torch.randint(len(maps), (N_UNLABELED,), generator=generator)]
        kept = torch.rand(*weak.shape[:2], 1, 1, generator=generator) >= DROPPED
        everything = torch.cat([labeled, weak, weak * kept / (1 - DROPPED)])
        logits = network.abstain_logits(network.read(everything)).split([len(labels), N_UNLABELED, N_UNLABELED])
        loss, _ = objective.loss(logits[0], labels, *logits[1:])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return network


@torch.no_grad()
def scores(network: LFNetwork, maps: Tensor, truth: np.ndarray) -> dict[str, float]:
    """Labels right: of all images, and of those that the LFs together are surest of."""
    joint = torch.cat(
        [
            consensus(torch.softmax(network.abstain_logits(network.read(chunk)), -1), network.specialties)
            for chunk in maps.split(CHUNK)
        ]
    ).numpy()
    right, surest = joint.argmax(1) == truth, np.argsort(-joint.max(1))[: round(SUREST * len(truth))]
    return {"right": round(float(right.mean()), 4), "right_of_surest_fifth": round(float(right[surest].mean()), 4)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10", help="as of dpssl run")
    parser.add_argument("--preset", default="cifar10-wrn-28-2", help="whose network the start is of")
    parser.add_argument(
        "--backbone-weights", default="", help="the start, as warm_start.py writes it; none: drawn weights"
    )
    parser.add_argument("--n-labels", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "frozen_start.json")
    chosen = parser.parse_args(arguments)
    base = with_values(load_preset(chosen.preset), {**COMMON, "backbone_weights": chosen.backbone_weights})
    dataset = load_dataset(chosen.data)
    bank, runs = ImageBank.from_numpy(dataset.images, torch.device("cpu")), list[dict[str, Any]]()
    backbone = started_backbone(base, bank.images.shape[1])
    maps = feature_maps(backbone, bank, torch.arange(min(N_IMAGES, len(bank))))
    for seed in chosen.seeds:
        _, split = make_split(dataset, chosen.n_labels, seed, base.data.test_fraction)
        labeled = feature_maps(backbone, bank, torch.from_numpy(split.labeled))
        labels = torch.from_numpy(split.given_labels[split.labeled])
        for name, settings in ARMS.items():
            config = with_values(base, {**settings, "seed": seed})
            network = train(config, labeled, labels, maps, dataset.n_classes)
            found = scores(network, maps, dataset.truth[: len(maps)])
            runs.append({"name": name, "seed": seed, **found})
            print(json.dumps(runs[-1]), flush=True)
            write_results(chosen.out, {"commit": commit(), "n_images": len(maps), "n_steps": N_STEPS, "runs": runs})


if __name__ == "__main__":
    main()

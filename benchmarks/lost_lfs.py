"""How many labeling functions are lost as fast or slow centres learn -> results/lost_lfs.json. Minutes on a CPU.

    python benchmarks/lost_lfs.py --data cifar10 --backbone-weights byol.safetensors --seeds 1 2 3

Heads learn Eq. 5 on feature maps of a start that stays as it is: from four labels a class, and from the labels of all
the images, as a run of `dpssl combine` has them. Lost is an LF that abstains from all of them at the end. The labels
are true ones, as no question here is about who knows what.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from frozen_start import CHUNK, feature_maps, network_on, started_backbone
from results_file import REPOSITORY, commit, write_results
from torch import Tensor

from dpssl.config import Config, load_preset, with_values
from dpssl.data.batches import ImageBank
from dpssl.data.readers import load_dataset
from dpssl.labeling.losses import labeled_loss
from dpssl.nets.lf_heads import LFNetwork

N_IMAGES, N_STEPS, BATCH, N_LAST = 6000, 1200, 64, 100
LEARNING_RATES, CENTER_RATES = (0.03, 0.1), (1.0, 0.1)
LABELS_A_CLASS = 4


def trained_heads(config: Config, maps: Tensor, labels: Tensor, n_classes: int, seed: int) -> tuple[LFNetwork, float]:
    """Heads on maps (n, D, h, w) and labels (n,), and their mean loss over the last steps."""
    generator, optim = torch.Generator().manual_seed(seed), config.optim
    network = network_on(maps, config, n_classes, generator)
    decayed = {"params": [network.heads.weight], "weight_decay": optim.weight_decay}
    free = {"params": [network.heads.bias, *network.pooling.parameters()]}
    optimizer = torch.optim.SGD([decayed, free], optim.learning_rate, optim.momentum, nesterov=True)
    losses = []
    for _ in range(N_STEPS):
        rows = torch.randint(len(labels), (BATCH,), generator=generator)
        logits = network.abstain_logits(network.read(maps[rows]))
        loss = labeled_loss(logits, labels[rows], network.specialties, config.labeling.abstain_weight).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return network, sum(losses[-N_LAST:]) / len(losses[-N_LAST:])


@torch.no_grad()
def n_lost(network: LFNetwork, maps: Tensor) -> int:
    """LFs that abstain from all of the maps."""
    speaks = [network.abstain_logits(network.read(chunk)).argmax(-1) < network.n_classes for chunk in maps.split(CHUNK)]
    return int((~torch.cat(speaks).any(0)).sum())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10", help="as of dpssl run")
    parser.add_argument("--preset", default="cifar10-40", help="whose network the start is of")
    parser.add_argument("--backbone-weights", default="", help="as warm_start.py writes them; none: drawn weights")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "lost_lfs.json")
    chosen = parser.parse_args(arguments)
    base = with_values(load_preset(chosen.preset), {"backbone_weights": chosen.backbone_weights})
    dataset = load_dataset(chosen.data)
    bank, runs = ImageBank.from_numpy(dataset.images, torch.device("cpu")), list[dict[str, Any]]()
    every = torch.arange(min(N_IMAGES, len(bank)))
    maps = feature_maps(started_backbone(base, bank.images.shape[1]), bank, every)
    labels = torch.from_numpy(dataset.truth[: len(maps)]).long()
    few = torch.cat([torch.nonzero(labels == each).flatten()[:LABELS_A_CLASS] for each in range(dataset.n_classes)])
    for seed, rows, rate, center_rate in product(chosen.seeds, (few, every), LEARNING_RATES, CENTER_RATES):
        rates = {"learning_rate": rate, "center_rate": center_rate}
        network, loss = trained_heads(with_values(base, rates), maps[rows], labels[rows], dataset.n_classes, seed)
        found = {"n_lost": n_lost(network, maps), "loss": round(loss, 3)}
        runs.append({"n_labels": len(rows), **rates, "seed": seed, **found})
        print(json.dumps(runs[-1]), flush=True)
    about = {"commit": commit(), "data": chosen.data, "preset": chosen.preset, "n_steps": N_STEPS}
    about |= {"backbone_weights": Path(chosen.backbone_weights).name, "n_lfs": base.labeling.n_lfs}
    write_results(chosen.out, {**about, "runs": runs})


if __name__ == "__main__":
    main()

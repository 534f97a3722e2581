"""What the backward pass loses and spares where weak views have no part in it -> results/weak_gradient.json.

    python benchmarks/weak_gradient.py --data cifar10 --set depth=10 width=2 batch_size=8
    python benchmarks/weak_gradient.py --data cifar10 --preset cifar10-40 --set batch_size=8 --out resnet18.json

FixMatch's gradient on the same images, views and weights in three ways: through the weak views too (`whole`), without
them (`--weak-gradient false`), and with weak views that pass apart (`--joint-forward false`). Written down at some
steps of a training by the whole gradient: the cosine with it and the norm beside it, of the convolutions and of the
norms' biases, and the time of a pass there and back beside it (medians, the ways in turn). All pseudo-labels count, so
that there is something to learn from at the first step.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from results_file import REPOSITORY, commit, write_results
from torch import Tensor

from dpssl.baselines.system import Learner
from dpssl.baselines.trainer import next_batch, start, start_feed
from dpssl.config import load_preset, settings_that_matter, with_values
from dpssl.data.batches import ImageBank, LabeledImages, unlabeled_pool
from dpssl.data.readers import load_dataset
from dpssl.data.split import make_split
from dpssl.training.precision import pick_device

WHOLE = "whole"
WAYS: dict[str, dict[str, Any]] = {
    WHOLE: {},
    "without weak views": {"weak_gradient": False},
    "apart": {"joint_forward": False},
}
FIXMATCH = {"method": "fixmatch", "method_settings": ["threshold=0"], "compile": False}
N_TIMES = 5


def compared(found: list[Tensor], whole: list[Tensor]) -> dict[str, float]:
    """Cosine of two gradients, each a list of tensors, and the ratio of their norms."""
    one, other = (torch.cat([part.flatten().float() for part in of]) for of in (found, whole))
    cosine = torch.nn.functional.cosine_similarity(one, other, dim=0)
    return {"cosine": round(float(cosine), 4), "norm": round(float(one.norm() / other.norm()), 4)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10", help="as of dpssl run")
    parser.add_argument("--preset", default="cifar10-wrn-28-2")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings, as in JSON")
    parser.add_argument("--at", type=int, nargs="+", default=[0, 20, 80, 160], help="steps at which to look")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "weak_gradient.json")
    chosen = parser.parse_args(arguments)
    given = {name: json.loads(value) for name, _, value in (item.partition("=") for item in chosen.set)}
    config = with_values(load_preset(chosen.preset), {**FIXMATCH, **given})
    device = pick_device(chosen.device)
    dataset, split = make_split(load_dataset(chosen.data), config.data.n_labels, config.run.seed, 0.2)
    bank = ImageBank.from_numpy(dataset.images, device)
    labels = torch.from_numpy(split.given_labels).to(device)
    labeled = LabeledImages.of(labels)
    network, system = start(config, dataset.n_classes, bank, labeled)
    feed = start_feed(bank, labeled, unlabeled_pool(labels, with_labeled=True), config)
    draws = torch.Generator(device).manual_seed(config.run.seed)
    learners = {
        way: Learner(network, dict, bank, with_values(config, settings), draws) for way, settings in WAYS.items()
    }
    parameters = list(network.parameters())
    convolutions = [i for i, parameter in enumerate(parameters) if parameter.ndim == 4]
    names = [name for name, _ in network.named_parameters()]
    biases = [i for i, name in enumerate(names) if name.startswith("backbone.") and name.endswith(".bias")]
    optimizer = torch.optim.SGD(parameters, config.optim.learning_rate, config.optim.momentum, nesterov=True)

    def gradient(way: str, batch: Any) -> list[Tensor]:
        loss, _ = system.loss(batch, learners[way])
        return list(torch.autograd.grad(loss, parameters))

    rows: list[dict[str, Any]] = []
    feed.seek(0)
    for step in range(max(chosen.at) + 1):
        feed.advance()
        batch = next_batch(feed, labels)
        if step in chosen.at:
            state, found, seconds = draws.get_state(), {}, {way: list[float]() for way in WAYS}
            for _ in range(N_TIMES):
                for way in WAYS:
                    draws.set_state(state)  # the same views
                    began = time.perf_counter()
                    found[way] = gradient(way, batch)
                    if device.type == "cuda":
                        torch.cuda.synchronize()
                    seconds[way].append(time.perf_counter() - began)
            for way, gradients in found.items():
                row: dict[str, Any] = {"step": step, "way": way}
                for part, places in (("convolutions", convolutions), ("biases", biases)):
                    row[part] = compared([gradients[i] for i in places], [found[WHOLE][i] for i in places])
                row["time"] = round(statistics.median(seconds[way]) / statistics.median(seconds[WHOLE]), 3)
                rows.append(row)
                print(row, flush=True)
            draws.set_state(state)
        for parameter, of_it in zip(parameters, gradient(WHOLE, batch), strict=True):
            parameter.grad = of_it
        optimizer.step()
    where = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    write_results(
        chosen.out, {"commit": commit(), "device": where, "config": settings_that_matter(config), "rows": rows}
    )


if __name__ == "__main__":
    main()

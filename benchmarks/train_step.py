"""Milliseconds a training step on one GPU, with a breakdown and the floor -> results/train_step.json.

    python benchmarks/train_step.py [--out results/train_step.json] [--steps 200]

Times the very steps that `dpssl run` trains with (same code, captured graph, bfloat16) on random images of the real
shapes: step 1 with K = 50 labeling functions, FixMatch (K = 1), and step 3. A part's time is that of a captured graph
holding this part alone; "rest" is what the whole step takes beyond its parts (losses, draws, logging). The floor is
the larger of the arithmetic (counted from the network's convolutions, three times the forward pass) at the matrix
rate, and the activations (each written once and read twice) at the copy bandwidth; both ceilings are measured in the
same run.
"""

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_file import REPOSITORY, commit, write_results
from torch import Tensor, nn

from dpssl.config import Config, with_values
from dpssl.data.augment import Augmenter
from dpssl.data.batches import ImageBank
from dpssl.end_model.train import train_end_model
from dpssl.labeling.train import build_network, train_lfs, view_forward
from dpssl.training.optim import FlatSGD
from dpssl.training.precision import autocast, pick_device
from dpssl.training.watch import Watch

BASE = {"compile": True, "fresh_statistics": False, "mcl_max_steps": 2, "mcl_min_steps": 1}
FIXMATCH = {"n_lfs": 1, "mcl": False, "feature_transform": False, "backbone_gradient": "sum"}
RESNET_18 = {"depth": 21, "width": 4, "strides": (1, 2, 2, 2)}
CASES: dict[str, tuple[dict[str, Any], int]] = {  # settings, image side
    "step 1, K = 50, WRN-28-2": ({}, 32),
    "step 1, K = 50, WRN-28-2, weak views apart": ({"joint_forward": False}, 32),
    "step 1, K = 50, WRN-28-2, backward without weak views": ({"weak_gradient": False}, 32),
    "FixMatch, K = 1, WRN-28-2": (FIXMATCH, 32),
    "FixMatch, K = 1, WRN-28-2, backward without weak views": ({**FIXMATCH, "weak_gradient": False}, 32),
    "step 1, K = 50, ResNet-18": (RESNET_18, 32),
    "step 1, K = 50, ResNet-18, backward without weak views": ({**RESNET_18, "weak_gradient": False}, 32),
    "step 1, K = 50, WRN-28-8": ({"width": 8}, 32),
    "step 1, K = 50, WRN-37-2, 96 px": ({"depth": 37, "strides": (1, 2, 2, 2)}, 96),
}


class StepTimer(Watch):
    """A watch that times the windows of a stage and keeps no files."""

    def __init__(self, stage: str) -> None:
        super().__init__(progress=False)
        self.stage, self.ends = stage, []

    def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
        torch.cuda.synchronize()
        if stage == self.stage:
            self.ends.append((step, time.perf_counter()))

    def milliseconds(self) -> float:
        """Median over the windows after the first, which holds the warm-up."""
        spans = [1000 * (t1 - t0) / (s1 - s0) for (s0, t0), (s1, t1) in zip(self.ends[:-1], self.ends[1:], strict=True)]
        return float(np.median(spans))


def random_bank(side: int, device: torch.device, n_images: int = 10_000) -> ImageBank:
    images = np.random.default_rng(0).integers(0, 256, (n_images, side, side, 3), dtype=np.uint8)
    return ImageBank.from_numpy(images, device)


def some_labels(n_images: int) -> torch.Tensor:
    given = torch.full((n_images,), -1)
    given[:40] = torch.arange(40) % 10
    return given


def time_step_one(settings: dict[str, Any], side: int, n_steps: int, device: torch.device) -> dict[str, float]:
    config = with_values(Config(), {**BASE, **settings, "steps": n_steps, "window": max(1, n_steps // 8)})
    bank, timer = random_bank(side, device), StepTimer("lfs")
    network = train_lfs(bank, some_labels(len(bank)), 10, config, timer).train()
    batch, ratio = config.labeling.batch_size, config.labeling.unlabeled_ratio
    n_learnt, n_images = batch * (1 + ratio), batch * (1 + 2 * ratio)
    read = torch.compile(network.read, dynamic=False)
    forward = view_forward(network.backbone, read, n_learnt, config.labeling)
    parts = {
        "augmentation": time_augmentation(config, bank, weak=batch * (1 + ratio), strong=batch * ratio),
        **time_network(config, network, forward, bank, n_images),
    }
    return report_row(timer.milliseconds(), n_images, parts) | floor(config, side, n_images, device)


def time_step_three(n_steps: int, device: torch.device) -> dict[str, float]:
    config = with_values(Config(), {**BASE, "end_steps": n_steps, "window": max(1, n_steps // 8)})
    bank, timer = random_bank(32, device), StepTimer("end")
    soft = torch.full((len(bank), 10), 0.1)
    everywhere = torch.ones(len(bank), dtype=torch.bool)
    network = train_end_model(bank, some_labels(len(bank)), soft, everywhere, config, timer).train()
    batch, ratio = config.end_model.end_batch_size, config.end_model.end_unlabeled_ratio
    n_images = batch * (1 + ratio)
    parts = {
        "augmentation": time_augmentation(config, bank, weak=batch, strong=batch * ratio),
        **time_network(config, network, network, bank, n_images),
    }
    return report_row(timer.milliseconds(), n_images, parts) | floor(config, 32, n_images, device)


def report_row(ms_per_step: float, n_images: int, parts: dict[str, float]) -> dict[str, float]:
    row = {"ms_per_step": ms_per_step, "images_per_second": 1000 * n_images / ms_per_step}
    row |= {f"{name}_ms": value for name, value in parts.items()}
    return row | {"rest_ms": ms_per_step - sum(parts.values())}


def time_augmentation(config: Config, bank: ImageBank, weak: int, strong: int) -> float:
    """So many weak and strong views, and the normalisation, captured as one graph."""
    generator = torch.Generator(bank.device).manual_seed(0)
    augment = Augmenter(config.augment, generator, compiled=True)
    images = bank.images[:weak].clone(), bank.images[:strong].clone()

    def views() -> None:
        bank.network_input(torch.cat([augment.weak(images[0]), augment.strong(images[1])]))

    return captured_milliseconds(views, generator)


def time_network(
    config: Config, network: nn.Module, forward: Callable[[Tensor], Tensor], bank: ImageBank, n_images: int
) -> dict[str, float]:
    """Forward pass, backward pass and optimiser, each from fixed inputs."""
    inputs = bank.network_input(bank.images[:n_images])
    optimizer = FlatSGD(network, config.optim.momentum, config.optim.weight_decay, config.optim.ema_decay)
    gradients = [torch.zeros_like(parameter) for parameter in optimizer.parameters]

    def ahead() -> Tensor:
        with autocast(bank.device, config.optim.precision):
            return forward(inputs)

    def there_and_back() -> None:
        torch.autograd.grad(ahead().square().mean(), optimizer.parameters, allow_unused=True)

    forward_ms = captured_milliseconds(ahead)
    both_ms = captured_milliseconds(there_and_back)
    optimizer_ms = captured_milliseconds(lambda: optimizer.step(gradients))
    return {"forward": forward_ms, "backward": both_ms - forward_ms, "optimizer": optimizer_ms}


def captured_milliseconds(work: Callable[[], object], generator: torch.Generator | None = None) -> float:
    """Of `work` as a captured graph."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        work()
    return milliseconds(graph.replay)


def floor(config: Config, side: int, n_images: int, device: torch.device) -> dict[str, float]:
    """The least time of a step: arithmetic and activation traffic of the convolutions at the measured ceilings."""
    flops, elements = 0, 0

    def count(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal flops, elements
        if isinstance(module, nn.Conv2d):
            flops += 2 * output.numel() * module.weight[0].numel()
            elements += output.numel()

    network = build_network(config, 10, 3).to(device).eval()  # the fused training pass calls no module
    hooks = [module.register_forward_hook(count) for module in network.backbone.modules()]
    with torch.no_grad():
        network.backbone(torch.zeros(2, 3, side, side, device=device))
    for hook in hooks:
        hook.remove()
    scale = n_images / 2
    arithmetic = 3 * flops * scale / ceiling_flops(device) * 1000
    traffic = 3 * 2 * elements * scale / ceiling_bytes(device) * 1000  # bfloat16: 2 bytes; written once, read twice
    return {"floor_arithmetic_ms": arithmetic, "floor_traffic_ms": traffic, "floor_ms": max(arithmetic, traffic)}


def ceiling_flops(device: torch.device, n: int = 8192) -> float:
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * n**3 / (milliseconds(lambda: a @ b) / 1000)


def ceiling_bytes(device: torch.device, n_bytes: int = 1 << 32) -> float:
    source = torch.randint(0, 256, (n_bytes,), device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2 * n_bytes / (milliseconds(lambda: target.copy_(source)) / 1000)


def milliseconds(work: Callable[[], object], n_repeats: int = 20) -> float:
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    spans = []
    for _ in range(n_repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        spans.append(start.elapsed_time(end))
    return float(np.median(spans))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", nargs="*", help="cases to time, by a part of their name")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "train_step.json")
    arguments = parser.parse_args()
    device = pick_device("cuda")
    rows: dict[str, dict[str, float]] = {}
    wanted = [
        name for name in [*CASES, "step 3, WRN-28-2"] if not arguments.only or any(p in name for p in arguments.only)
    ]
    for name in wanted:
        if name in CASES:
            settings, side = CASES[name]
            rows[name] = time_step_one(settings, side, arguments.steps, device)
        else:
            rows[name] = time_step_three(arguments.steps, device)
        shown = "  ".join(f"{key} {value:,.2f}" for key, value in rows[name].items())
        print(f"{name:<34} {shown}", flush=True)
    report = {
        "what": "training step on one GPU, 64 labelled + 448 unlabelled images (weak and strong views)",
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "commit": commit(),
        "rows": rows,
    }
    write_results(arguments.out, report)


if __name__ == "__main__":
    main()

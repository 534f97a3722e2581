"""A small training run for the checks of run_checks.py, ways to change it, and when two of them are the same."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import dpssl.baselines.trainer as baseline_trainer
import dpssl.labeling.train as labeling_train
import dpssl.warm_start.train as warm_start_train
from dpssl.config import Config, RunConfig, with_values
from dpssl.data.batches import ImageBank
from dpssl.training import stage
from dpssl.training.seeds import stream_seed
from dpssl.training.step import TrainStep
from dpssl.training.watch import Watch

TINY: dict[str, Any] = {
    "depth": 10, "width": 1, "bn_momentum": 0.1, "n_lfs": 6, "specialist_ratio": 0.5, "mcl_min_steps": 2,
    "mcl_max_steps": 4, "mcl_window": 2, "steps": 6, "window": 2, "batch_size": 8, "unlabeled_ratio": 2,
    "ema_decay": 0.9, "end_steps": 6, "end_batch_size": 8, "end_unlabeled_ratio": 2,
}  # fmt: skip
LARGEST_SHARE = 0.1  # of the distance to a run with other views; a relative change of 1e-6 makes at most 0.02 of it
Weights = dict[str, Tensor]


def tiny_images(n_images: int = 120, side: int = 16) -> tuple[np.ndarray, Tensor]:
    """Three classes that differ in brightness, and their labels, of which the first 12 are given."""
    truth = torch.arange(n_images) % 3
    noise = np.random.default_rng(0).integers(0, 60, (n_images, side, side, 3))
    images = (noise + 80 * truth.numpy()[:, None, None, None]).astype(np.uint8)
    return images, torch.where(torch.arange(n_images) < 12, truth, -1)


@contextmanager
def full_float32() -> Iterator[None]:
    """float32 to all its digits, by kernels that are not chosen by the clock: rounded as TF32, a step that is the same
    but for the order of its sums can move weights by a fifth of what other views would."""
    backend, precision = torch.backends.cudnn, torch.get_float32_matmul_precision()
    before = backend.benchmark, backend.deterministic, backend.allow_tf32
    backend.benchmark, backend.deterministic, backend.allow_tf32 = False, True, False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        backend.benchmark, backend.deterministic, backend.allow_tf32 = before
        torch.set_float32_matmul_precision(precision)


@full_float32()
def train(device: torch.device, memory: str = "device", watch: Watch | None = None, **more: Any) -> Weights:
    images, given = tiny_images()
    bank = ImageBank.from_numpy(images, device, memory)
    config = with_values(Config(), {**TINY, "precision": "float32", **more})
    return weights_of(labeling_train.train_lfs(bank, given, 3, config, watch or Watch(progress=False)))


def weights_of(network: torch.nn.Module) -> Weights:
    """Its weights and running statistics."""
    state = network.state_dict()
    return {name: tensor.cpu().clone() for name, tensor in state.items() if tensor.is_floating_point()}


def distance(one: Weights, other: Weights) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def require_same(device: torch.device, what: str, one: Weights, others: Sequence[Weights], elsewhere: Weights) -> str:
    """`others` are `one`, to the bit on a CPU. A GPU adds in an order of its own, and thresholds make much of little:
    there they must be a tenth as close as the same run with other views, `elsewhere`, which is as far as a run with a
    draw or an update too many."""
    found, far = max(distance(one, other) for other in others), distance(one, elsewhere)
    told = f"weights differ by {found:.2g}, with other views by {far:.2g}"
    if not far > 0 or not found <= (LARGEST_SHARE * far if device.type == "cuda" else 0.0):
        raise AssertionError(f"{what}: {told}")
    return told


class StopAfter(Watch):
    def __init__(self, folder: Path, n_windows: int | None) -> None:
        super().__init__(folder, {"seed": 1}, checkpoint_minutes=0, progress=False)
        self.n_left = n_windows

    def after_window(self, *arguments: Any) -> None:
        if self.n_left is not None:
            self.n_left -= 1
            self.stop_requested = self.n_left == 0
        super().after_window(*arguments)


@contextmanager
def eager_steps() -> Iterator[None]:
    """Steps run one operation at a time, never as a captured graph."""

    class Eager(TrainStep):
        def capture(self) -> None:
            pass

    before, stage.TrainStep = stage.TrainStep, Eager  # type: ignore[misc]
    try:
        yield
    finally:
        stage.TrainStep = before  # type: ignore[misc]


@contextmanager
def other_views() -> Iterator[None]:
    """Views are drawn from another seed; images, their order and the first weights stay those of the run."""

    def shifted(run: RunConfig, purpose: str) -> int:
        return stream_seed(replace(run, seed=run.seed + 1) if purpose.startswith("draws of") else run, purpose)

    modules = (labeling_train, baseline_trainer, warm_start_train)
    try:
        for module in modules:
            module.stream_seed = shifted
        yield
    finally:
        for module in modules:
            module.stream_seed = stream_seed


def train_elsewhere(device: torch.device) -> Weights:
    with other_views():
        return train(device)


def require_captured_as_eager(device: torch.device, fit: Callable[[], Weights]) -> str:
    captured = fit()
    with eager_steps():
        eager = fit()
        with other_views():
            elsewhere = fit()
    return require_same(device, "captured and eager", eager, [captured], elsewhere)

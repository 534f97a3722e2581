"""Milliseconds a step of every `dpssl fit` method, and per image through the network -> results/baselines_step.json.

    python benchmarks/baselines.py [--device cpu] [--steps 20] [--repeats 3] [--out results/baselines_step.json]

Times the very steps that `dpssl fit` trains with, on random images: 32x32 in colour and a Wide ResNet-28-2 with batches
of 64 and 448 on a GPU, digits' shape and preset on a CPU. On a CPU it is the process's own time on one thread, which
other programs disturb less than the clock on the wall. Methods take turns, and the median of their turns counts.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dpssl.baselines.registry import SYSTEMS
from dpssl.baselines.system import Learner
from dpssl.baselines.trainer import train_baseline
from dpssl.config import Config, load_preset, with_values
from dpssl.data.batches import ImageBank
from dpssl.training.precision import pick_device
from dpssl.training.watch import Watch

REPOSITORY = Path(__file__).resolve().parent.parent
REFERENCE = "fixmatch"
N_IMAGES, N_CLASSES = 2048, 10
SMALLEST = {"depth": 10, "width": 1}  # images are counted on the CPU; how many does not depend on the network


class StepTimer(Watch):
    """Times a stage from the end of its first window, which holds the warm-up, to that of its last."""

    def __init__(self, clock: Any) -> None:
        super().__init__(progress=False)
        self.clock, self.ends = clock, []

    def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
        self.ends.append((step, self.clock()))

    def milliseconds(self) -> float:
        (first_step, first), (last_step, last) = self.ends[0], self.ends[-1]
        return 1000 * (last - first) / (last_step - first_step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "baselines_step.json")
    chosen = parser.parse_args()
    device = pick_device(chosen.device)
    base, side, n_channels = (Config(), 32, 3) if device.type == "cuda" else (load_preset("digits"), 8, 1)
    base = with_values(base, {"fresh_statistics": False})  # a step is timed, not what follows the last one
    torch.set_num_threads(1)
    pixels = np.random.default_rng(0).integers(0, 256, (N_IMAGES, side, side, n_channels), dtype=np.uint8)
    bank = ImageBank.from_numpy(pixels, device)
    labels = torch.where(torch.arange(N_IMAGES) < 4 * N_CLASSES, torch.arange(N_IMAGES) % N_CLASSES, -1)

    def run(method: str, steps: int) -> float:
        window = max(1, steps // 4)
        config = with_values(base, {"method": method, "steps": steps, "window": window})
        watch = StepTimer(time.process_time if device.type == "cpu" else _after_the_device)
        train_baseline(bank, labels, N_CLASSES, config, watch)
        return watch.milliseconds()

    turns: dict[str, list[float]] = {method: [] for method in {REFERENCE: 0, **dict.fromkeys(chosen.methods)}}
    for _ in range(chosen.repeats):
        for method, times in turns.items():
            times.append(run(method, chosen.steps))
            print(f"{method}: {times[-1]:.2f} ms a step", flush=True)  # what is cut off has said something
    rows = {}
    for method, times in turns.items():
        n_images = images_a_step(bank, labels, with_values(base, {"method": method, "steps": 1, **SMALLEST}))
        milliseconds = statistics.median(times)
        rows[method] = {"ms": round(milliseconds, 3), "images": n_images, "us_an_image": 1000 * milliseconds / n_images}
    for method, row in rows.items():
        row["of_fixmatch"] = round(row["us_an_image"] / rows[REFERENCE]["us_an_image"], 3)
        row["us_an_image"] = round(row["us_an_image"], 2)
        print(f"{method:<17} {row['ms']:9.2f} ms  {row['images']:5d} images  {row['us_an_image']:8.2f} µs an image  "
              f"{row['of_fixmatch']:.2f} of fixmatch")  # fmt: skip
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()} CPU, one thread"
    settings = {"steps": chosen.steps, "repeats": chosen.repeats, "side": side, "torch": torch.__version__}
    chosen.out.write_text(json.dumps({"device": name, **settings, "methods": rows}, indent=1) + "\n", encoding="utf-8")


def images_a_step(bank: ImageBank, labels: torch.Tensor, config: Config) -> int:
    """Images that one step sends through the network, with a gradient or without."""
    counts: list[int] = []
    inputs = Learner.inputs

    def counted(learner: Learner, images: torch.Tensor) -> torch.Tensor:
        counts.append(len(images))
        return inputs(learner, images)

    Learner.inputs = counted  # type: ignore[method-assign]
    try:
        train_baseline(ImageBank(bank.images.cpu(), bank.mean.cpu(), bank.std.cpu()), labels, N_CLASSES, config,
                       Watch(progress=False))  # fmt: skip
    finally:
        Learner.inputs = inputs  # type: ignore[method-assign]
    return sum(counts)


def _after_the_device() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()

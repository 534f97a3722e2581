"""A training step with its images streamed, beside the same step with them on the device -> results/streaming.json.

    python benchmarks/streaming.py [--out results/streaming.json] [--steps 400] [--images 100000] [--side 32]

Times step 1's second phase exactly as `dpssl run` trains it (on a GPU a captured graph in bfloat16), on random images:
on the device, streamed from host memory, and streamed from a memory-mapped file. The three train the same network
to the same loss (to 5 %), which is checked. Without a GPU a small network shows that it works, not how fast it is.
"""

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_file import REPOSITORY, commit, write_results

from dpssl.config import Config, with_values
from dpssl.data.batches import ImageBank
from dpssl.labeling.train import STAGE_SSL, train_lfs
from dpssl.training.precision import pick_device
from dpssl.training.watch import Watch

SETTINGS = {"cuda": {}, "cpu": {"depth": 10, "width": 1, "n_lfs": 10, "batch_size": 8, "unlabeled_ratio": 3}}
SIZES = {"cuda": (400, 100_000), "cpu": (24, 2_000)}  # steps, images
N_WINDOWS = 8
TARGET = 0.8  # of the in-memory speed


class Timer(Watch):
    """Keeps no files; notes when each window of the stage ended and its loss."""

    def __init__(self) -> None:
        super().__init__(progress=False)
        self.ends: list[tuple[int, float]] = []
        self.losses: list[float] = []

    def after_window(self, stage: str, step: int, metrics: Mapping[str, float], state: Any, notes: Any) -> None:
        if stage == STAGE_SSL:
            self.ends.append((step, time.perf_counter()))  # reading the metrics has waited for the device
            self.losses.append(metrics["loss"])

    def milliseconds(self) -> list[float]:
        """A step's time in each window after the first, which also warms up."""
        spans = zip(self.ends[:-1], self.ends[1:], strict=True)
        return [1000 * (t1 - t0) / (s1 - s0) for (s0, t0), (s1, t1) in spans]


def time_bank(bank: ImageBank, config: Config) -> dict[str, Any]:
    labels = torch.full((len(bank),), -1)
    labels[:40] = torch.arange(40) % 10
    timer = Timer()
    train_lfs(bank, labels, 10, config, timer)
    spans = timer.milliseconds()
    n_views = config.labeling.batch_size * (1 + 2 * config.labeling.unlabeled_ratio)
    middle = statistics.median(spans)
    return {
        "ms_per_step": middle,
        "fastest_window_ms": min(spans),
        "slowest_window_ms": max(spans),
        "views_per_second": 1000 * n_views / middle,
        "first_loss": timer.losses[0],
    }


def measure(device: torch.device, n_steps: int, n_images: int, side: int, more: Mapping[str, Any]) -> dict[str, Any]:
    config = with_values(
        Config(),
        {
            **SETTINGS[device.type],
            **more,
            "mcl_min_steps": 1,
            "mcl_max_steps": 2,
            "steps": n_steps,
            "window": max(1, n_steps // N_WINDOWS),
        },
    )
    images = np.random.default_rng(0).integers(0, 256, (n_images, side, side, 3), dtype=np.uint8)
    rows = {
        "on the device": time_bank(ImageBank.from_numpy(images, device, "device"), config),
        "streamed from memory": time_bank(ImageBank.from_numpy(images, device, "stream"), config),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.npy"
        np.save(path, images)
        mapped = np.load(path, mmap_mode="r")
        rows["streamed from a mapped file"] = time_bank(ImageBank.from_numpy(mapped, device, "stream"), config)
    reference = rows["on the device"]
    for name, row in rows.items():
        row["share_of_device_speed"] = reference["ms_per_step"] / row["ms_per_step"]
        if abs(row["first_loss"] - reference["first_loss"]) > 0.05 * abs(reference["first_loss"]):
            raise SystemExit(
                f"{name}: trained to another loss, {row['first_loss']} instead of {reference['first_loss']}"
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--steps", type=int, help="timed steps; default 400 on a GPU")
    parser.add_argument("--images", type=int, help="default 100,000 on a GPU")
    parser.add_argument("--side", type=int, default=32, help="pixels")
    parser.add_argument(
        "--compile", action="store_true", help="as --compile true of a run: a minute's wait for each row"
    )
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "streaming.json")
    arguments = parser.parse_args()
    started = time.perf_counter()
    device = pick_device(arguments.device)
    n_steps, n_images = arguments.steps or SIZES[device.type][0], arguments.images or SIZES[device.type][1]
    rows = measure(device, n_steps, n_images, arguments.side, {"compile": arguments.compile})
    print(f"{'images':<30} {'ms/step':>8} {'slowest':>8} {'share of speed':>15}")
    for name, row in rows.items():
        share = f"{100 * row['share_of_device_speed']:.1f} %"
        print(f"{name:<30} {row['ms_per_step']:8.2f} {row['slowest_window_ms']:8.2f} {share:>15}")
    worst = min(row["share_of_device_speed"] for row in rows.values())
    print(f"target {100 * TARGET:.0f} %: {'reached' if worst >= TARGET else 'missed'}")
    report = {
        "what": "step 1's second phase with its images on the device and streamed",
        "device": torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads",
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "commit": commit(),
        "settings": {"steps": n_steps, "images": n_images, "side": arguments.side, "compile": arguments.compile}
        | SETTINGS[device.type],
        "seconds": time.perf_counter() - started,
        "rows": rows,
    }
    write_results(arguments.out, report)


if __name__ == "__main__":
    main()

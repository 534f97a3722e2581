"""Checks of training on a GPU as one script: a line with PASS or FAIL for each, exit status 1 if any fails.

    python tests/gpu/run_checks.py [--device cuda] [--only resume streaming]

Needs torch, numpy, Pillow and safetensors (and scikit-learn for the run of the command line), no pytest. With
`--device cpu` the same checks run on the CPU where that makes sense. pytest runs them too (test_checks.py).
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny_runs import (
    TINY,
    StopAfter,
    Weights,
    full_float32,
    require_captured_as_eager,
    require_same,
    tiny_images,
    train,
    train_elsewhere,
    weights_of,
)

from dpssl.baselines.registry import SYSTEMS
from dpssl.baselines.trainer import train_baseline
from dpssl.config import WARM_RATES, AugmentConfig, Config, with_values
from dpssl.data.augment import apply_strong, apply_weak, draw_strong, draw_weak, draw_zoom
from dpssl.data.batches import ImageBank
from dpssl.data.geometry import zoom
from dpssl.end_model.predict import predict_probabilities
from dpssl.end_model.train import train_end_model
from dpssl.errors import TrainingError
from dpssl.labeling.train import UNDECAYED, start_network, train_lfs
from dpssl.labeling.vote import cast_votes
from dpssl.nets.wide_resnet import WideResNet, initialize
from dpssl.training import distributed
from dpssl.training.checkpoint import CheckpointStore
from dpssl.training.optim import FlatSGD
from dpssl.training.precision import pick_device
from dpssl.training.step import TrainState, TrainStep
from dpssl.training.watch import StopRequested, Watch
from dpssl.warm_start import train_warm_start

SOURCE = Path(__file__).resolve().parents[2] / "src"
LARGEST_FILE = 16 * 2**20


def check_captured_step(device: torch.device) -> str:
    """A captured step equals the same step run eagerly, also where weak views are left out of the backward pass."""
    ways: dict[str, dict[str, Any]] = {
        "all views": {},
        "weak ones left out": {"weak_gradient": False},
        "the same, channels that no kernel takes": {"weak_gradient": False, "width": 3},
    }
    told = (
        f"{name}: {require_captured_as_eager(device, partial(train, device, **more))}" for name, more in ways.items()
    )
    return "; ".join(told)


def check_split_pass(device: torch.device) -> str:
    """Left out of the backward pass here and on the CPU: the same features and gradients, by kernels and by torch.

    In bfloat16, which the convolution kernels ask for, as near to them as the whole pass comes to its own.
    """
    told = []
    for width in (1, 2, 3, 4):
        exact, lower = (distance_from_cpu(device, width, precision) for precision in (torch.float32, torch.bfloat16))
        whole = distance_from_cpu(device, width, torch.bfloat16, n_learnt=24)
        told.append(f"width {width}: {exact:.2g} of its norm, in bfloat16 {lower:.2g}, of the whole pass {whole:.2g}")
        if not (exact < 1e-3 and lower < 1.5 * whole and whole < 0.5):
            raise AssertionError("; ".join(told))
    return "; ".join(told)


def distance_from_cpu(device: torch.device, width: int, precision: torch.dtype, n_learnt: int = 15) -> float:
    """The largest distance of a feature map or gradient from the CPU's in float32, beside its norm; NaN is infinite.

    Of 24 images `n_learnt` enter the backward pass.
    """
    found = []
    for where in (torch.device("cpu"), device):
        generator = torch.Generator().manual_seed(width)
        network = WideResNet(10, width, n_channels=3)
        initialize(network, generator)
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.weight.data.uniform_(0.5, 1.5, generator=generator)
                module.bias.data.uniform_(-0.5, 0.5, generator=generator)
        images = torch.randn(24, 3, 16, 16, generator=generator)
        lower = bool(found) and precision != torch.float32
        with full_float32(), torch.autocast(where.type, torch.bfloat16, enabled=lower):
            network.to(where).train()
            if n_learnt < len(images):
                learnt, targets = network.split_forward(images.to(where), n_learnt)
            else:
                learnt = targets = network(images.to(where))
            gradient = torch.randn(learnt.shape, generator=generator).to(where, learnt.dtype)
            gradients = torch.autograd.grad(learnt, list(network.parameters()), gradient)
        found.append([tensor.detach().float().cpu() for tensor in (learnt, targets, *gradients)])
    distances = torch.stack([(one - other).norm() / one.norm() for one, other in zip(*found, strict=True)])
    return float(distances.nan_to_num(float("inf")).max())


def check_baselines(device: torch.device) -> str:
    """A captured step of every method of `dpssl fit` equals the same step run eagerly."""
    images, given = tiny_images()

    @full_float32()
    def fit(method: str) -> Weights:
        config = with_values(Config(), {**TINY, "method": method, "precision": "float32"})
        trained = train_baseline(
            ImageBank.from_numpy(images, device, "device"), given, 3, config, Watch(progress=False)
        )
        return weights_of(trained.network)

    told, failed = [], []
    for method in SYSTEMS:
        try:
            told.append(f"{method}: {require_captured_as_eager(device, partial(fit, method))}")
        except Exception as problem:  # a graph may fail in any way; the other methods still have their turn
            failed.append(f"{method}: {type(problem).__name__}: {problem}")
    if failed:
        raise AssertionError("; ".join(failed))
    return "; ".join(told)


def check_warm_starts(device: torch.device) -> str:
    """A captured step of either warm start equals the same step run eagerly."""
    images, _ = tiny_images()

    @full_float32()
    def warm(method: str) -> Weights:
        config = with_values(Config(), {**TINY, "warm_steps": 6, "warm_method": method, "precision": "float32"})
        bank = ImageBank.from_numpy(images, device, "device")
        weights = train_warm_start(bank, torch.arange(len(bank)), config, Watch(progress=False))
        return {name: tensor.cpu() for name, tensor in weights.items() if tensor.is_floating_point()}

    return "; ".join(f"{method}: {require_captured_as_eager(device, partial(warm, method))}" for method in WARM_RATES)


def check_resume(device: torch.device) -> str:
    """Training stopped in either phase and resumed is training unbroken."""
    resumed = []
    for n_windows in (1, 4):
        with tempfile.TemporaryDirectory() as folder:
            try:
                train(device, watch=StopAfter(Path(folder), n_windows))
            except StopRequested:
                pass
            else:
                raise AssertionError("was not stopped")
            resumed.append(train(device, watch=StopAfter(Path(folder), None)))
    return require_same(device, "resumed and unbroken", train(device), resumed, train_elsewhere(device))


def check_streaming(device: torch.device) -> str:
    """Images streamed from the host train the same network as images on the device."""
    streamed = train(device, "stream")
    return require_same(device, "streamed and stored", train(device), [streamed], train_elsewhere(device))


def check_augmentation(device: torch.device) -> str:
    """Views of the same draws are the same bytes on the device as on the CPU; zoomed ones to a level of brightness."""
    settings, generator = AugmentConfig(), torch.Generator().manual_seed(0)
    images = torch.randint(256, (64, 3, 32, 32), generator=generator, dtype=torch.uint8)
    weak, strong = draw_weak(images, settings, generator), draw_strong(images, settings, generator)
    part = draw_zoom(images, AugmentConfig(zoom=1.6), generator)
    there = images.to(device)
    weak_there = type(weak)(*(column.to(device) for column in weak))
    strong_weak = type(weak)(*(column.to(device) for column in strong.weak))
    strong_there = type(strong)(
        strong_weak, strong.turns.to(device), strong.centre_y.to(device), strong.centre_x.to(device)
    )
    pairs = {
        "weak": (apply_weak(images, weak), apply_weak(there, weak_there), 0),
        "strong": (apply_strong(images, settings, strong), apply_strong(there, settings, strong_there), 0),
        "zoomed": (zoom(images, *part), zoom(there, *(column.to(device) for column in part)), 1),
    }
    for name, (here, other, allowed) in pairs.items():
        n_differing = int(((here.int() - other.cpu().int()).abs() > allowed).sum())
        if n_differing:
            raise AssertionError(f"{name} view: {n_differing} of {here.numel()} pixels differ")
    return "weak, strong and zoomed views, 64 images"


def check_out_of_memory(device: torch.device) -> str:
    """Running out of device memory names the flag to lower and a value to try.

    In a process of its own: checks before it leave memory in use (workspaces of cuBLAS, one a stream), and it leaves an
    allocator that a broken capture may have spoilt.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"import run_checks; run_checks.run_out_of_memory({device.type!r})"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(Path(__file__).parent)])},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    if done.returncode != 0 or "try --batch-size 8192 (now 16384)" not in done.stdout:
        raise AssertionError(f"exit status {done.returncode}: {done.stdout}{done.stderr[-500:]}")
    return done.stdout.strip()


def run_out_of_memory(device: str) -> None:
    """Trains with a batch that does not fit, and prints what is said of it; a CPU pretends."""
    if device == "cuda":
        everything = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(2**30 / everything)
    else:
        TrainStep.run = _pretend_to_run_out  # type: ignore[method-assign]
    try:
        train(pick_device(device), batch_size=16384, unlabeled_ratio=7)
    except TrainingError as problem:
        print(problem)
    else:
        raise AssertionError("the batch did fit")


def _pretend_to_run_out(step: TrainStep, learning_rate: float) -> None:
    raise torch.OutOfMemoryError("pretended")


def check_bfloat16(device: torch.device) -> str:
    """Step 3 learns three easy classes with its backbone in bfloat16."""
    images, given = tiny_images()
    bank = ImageBank.from_numpy(images, device)
    truth = torch.arange(len(images)) % 3
    soft_labels = torch.nn.functional.one_hot(truth, 3).float()
    covered = torch.ones(len(images), dtype=torch.bool)
    settings = {**TINY, "precision": "bfloat16", "end_steps": 40, "n_ops": 0, "cutout": 0.0}
    network = train_end_model(bank, given, soft_labels, covered, with_values(Config(), settings), Watch(progress=False))
    accuracy = float((predict_probabilities(network, bank).argmax(1) == truth).float().mean())
    if accuracy < 0.9:
        raise AssertionError(f"accuracy {accuracy:.2f} after 40 steps")
    return f"accuracy {accuracy:.2f} after 40 steps"


def check_checkpoint_sizes(device: torch.device) -> str:
    """No file of a checkpoint of step 1 with WRN-28-2 and K = 50 reaches 16 MB."""
    images, _ = tiny_images(side=32)
    network = start_network(Config(), 10, ImageBank.from_numpy(images, device))
    optimizer = FlatSGD(network, 0.9, 5e-4, 0.999, undecayed=UNDECAYED)
    state = TrainState(optimizer, {"network": network}, torch.Generator(device))
    with tempfile.TemporaryDirectory() as folder:
        CheckpointStore(Path(folder), "lfs").save(1, state.files(), {})
        sizes = {path.name: path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()}
    largest = max(sizes, key=lambda name: sizes[name])
    if sizes[largest] >= LARGEST_FILE:
        raise AssertionError(f"{largest} has {sizes[largest] / 2**20:.1f} MiB")
    return f"the largest, {largest}, has {sizes[largest] / 2**20:.1f} MiB"


def check_votes(device: torch.device) -> str:
    """One network's votes on the device are its votes on the CPU."""
    images, given = tiny_images(side=32)
    bank = ImageBank.from_numpy(images, device)
    network = train_lfs(bank, given, 3, with_values(Config(), TINY), Watch(progress=False))
    there = cast_votes(network, bank)
    here = cast_votes(network.cpu(), ImageBank.from_numpy(images, torch.device("cpu")))
    same = float((there.votes == here.votes).mean())
    apart = float(np.abs(there.confidence.astype(float) - here.confidence.astype(float)).max())
    if same < 0.99 or apart > 0.05:
        raise AssertionError(f"{100 * same:.1f} % of the votes agree, confidences differ by up to {apart:.3f}")
    return f"{100 * same:.1f} % agree, confidences differ by up to {apart:.3f}"


def check_messages_in_a_graph(device: torch.device) -> str:
    """Training as the only one of "several" processes, every message sent, equals training alone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"
    }  # fmt: skip
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        with distributed.joined():
            joined = train(device)
    finally:
        os.environ.clear()
        os.environ.update(before)
    return require_same(device, "through messages and alone", train(device), [joined], train_elsewhere(device))


def check_command_line(device: torch.device) -> str:
    """`dpssl run` on digits, ended by SIGTERM and resumed, leaves a whole run."""
    flags = [
        text
        for name, value in TINY.items()
        if name not in ("depth", "width", "bn_momentum")
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        command = [sys.executable, "-m", "dpssl"]
        started = subprocess.Popen(
            [*command, "run", *flags, "--steps", "200000", "--device", device.type, "--out", str(out)],
            env=environment, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + 240
        while not _has_logged(out, "lfs") and started.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        started.send_signal(signal.SIGTERM)
        _, said = started.communicate(timeout=120)
        if started.returncode != 128 + signal.SIGTERM or not list((out / "checkpoint").glob("lfs-*")):
            raise AssertionError(f"exit status {started.returncode} after SIGTERM: {said[-500:]}")
        stopped = subprocess.run(
            [*command, "resume", str(out), "--max-minutes", "0.02"], env=environment, capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip
        if stopped.returncode != 0 or "stopped; continue with" not in stopped.stderr:
            raise AssertionError(f"resume ended with {stopped.returncode}: {stopped.stderr[-500:]}")
        steps = [line for line in (out / "metrics.jsonl").read_text().splitlines() if '"lfs"' in line]
        whole = Path(folder) / "whole"
        done = subprocess.run(
            [*command, "run", *flags, "--device", device.type, "--out", str(whole)], env=environment,
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        if done.returncode != 0 or not (whole / "summary.json").is_file():
            raise AssertionError(f"run ended with {done.returncode}: {done.stderr[-500:]}")
    return f"stopped and resumed over {len(steps)} windows; a whole run has its summary"


def _has_logged(run: Path, stage_name: str) -> bool:
    log = run / "metrics.jsonl"
    return log.is_file() and f'"{stage_name}"' in log.read_text()


CHECKS: dict[str, Callable[[torch.device], str]] = {
    "captured step equals eager step": check_captured_step,
    "views left out of the backward pass": check_split_pass,
    "captured steps of the baselines equal eager ones": check_baselines,
    "captured warm starts equal eager ones": check_warm_starts,
    "resume equals unbroken": check_resume,
    "streaming equals in-memory": check_streaming,
    "augmentation equals the CPU's": check_augmentation,
    "out-of-memory message": check_out_of_memory,
    "bfloat16 trains": check_bfloat16,
    "checkpoint files below 16 MB": check_checkpoint_sizes,
    "votes equal the CPU's": check_votes,
    "messages of several processes in the step": check_messages_in_a_graph,
    "command line, SIGTERM and resume": check_command_line,
}
GPU_ALONE = (
    "captured step equals eager step",
    "captured steps of the baselines equal eager ones",
    "captured warm starts equal eager ones",
)  # there is no graph on a CPU


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="*", default=[], help="checks to run, by a part of their name")
    parser.add_argument("--traceback", action="store_true", help="show where a check failed")
    arguments = parser.parse_args()
    device = pick_device(arguments.device)
    failed = 0
    for name, check in CHECKS.items():
        if arguments.only and not any(part in name for part in arguments.only):
            continue
        if device.type == "cpu" and name in GPU_ALONE:
            print(f"SKIP  {name}: needs a GPU")
            continue
        started = time.perf_counter()
        try:
            verdict, told = "PASS", check(device)
        except Exception as problem:  # a check may fail in any way; the others still run
            failed += 1
            verdict, told = "FAIL", f"{type(problem).__name__}: {problem}"
            if arguments.traceback:
                traceback.print_exc()
        print(f"{verdict}  {name} ({time.perf_counter() - started:.1f} s): {told}", flush=True)
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The convolution kernels against cuDNN on one GPU: microseconds a shape and operation, and their best plan.

    PYTHONPATH=src python benchmarks/conv_kernels.py [--out results/conv_kernels.json] [--quick] [--only "32->32@32 in"]
        [--plans "2,64,32,8,3 ..."]

Shapes are those of WRN-28-2 in FixMatch's joint batch (960 images forward, 512 backward), bfloat16, channels-last; the
widest is there to show where a library is faster. Each time is that of a captured graph of ten calls. Plans that fail
to compile are left out; plans that err by more than a bfloat16 sum may are marked with "!". Compiling is spread over
processes, which leave their kernels in Triton's cache. --quick times the plans that the package chooses itself, --plans
others than those below, --only the lines that begin so. --dry-run goes through the motions at a tiny size, for Triton's
interpreter. What was "tried" before and given up stays in the file.
"""

import argparse
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from results_file import commit, write_results
from torch import Tensor
from torch.nn.functional import conv2d
from torch.nn.grad import conv2d_input, conv2d_weight

from dpssl.nets import conv_kernels
from dpssl.nets.conv_kernels import Plan

CALLS, REPEATS, TOLERANCE = 10, 5, 2e-2
SHAPES = [(3, 16, 32), (16, 32, 32), (32, 32, 32), (64, 64, 16)]  # channels in, channels out, side
BATCHES = (960, 512)

WALK = [
    Plan(2, 64, 32, 4, 3), Plan(2, 64, 16, 4, 3), Plan(2, 64, 32, 8, 3), Plan(2, 128, 32, 8, 3),
    Plan(1, 64, 32, 4, 3), Plan(1, 64, 32, 4, 4), Plan(1, 128, 32, 8, 3), Plan(2, 64, 32, 4, 2),
]  # fmt: skip
STEM = [
    Plan(2, 64, 16, 4, 3), Plan(2, 64, 8, 4, 3), Plan(2, 64, 32, 4, 3), Plan(2, 128, 16, 4, 3),
    Plan(4, 64, 8, 4, 3), Plan(4, 64, 16, 8, 3), Plan(4, 64, 8, 8, 3), Plan(8, 64, 8, 8, 3),
]  # fmt: skip
WIDE = [Plan(1, 64, 16, 8, 3), Plan(1, 64, 16, 8, 2), Plan(1, 64, 8, 8, 3), Plan(1, 64, 8, 8, 2)]
WEIGHT = [
    Plan(2, 64, 16, 8, 3), Plan(2, 64, 32, 8, 3), Plan(2, 32, 16, 8, 3, 264), Plan(2, 32, 32, 8, 4, 264),
    Plan(2, 64, 16, 8, 2, 264), Plan(1, 64, 16, 4, 3), Plan(1, 32, 16, 4, 3, 264), Plan(1, 32, 16, 4, 4, 264),
]  # fmt: skip
WEIGHT_HALF = [
    Plan(2, 64, 16, 4, 3, 264), Plan(2, 32, 16, 4, 3, 264), Plan(2, 32, 16, 4, 4, 396), Plan(2, 64, 16, 4, 2, 264),
    Plan(1, 64, 16, 4, 3, 264), Plan(1, 32, 16, 4, 4, 396), Plan(2, 64, 32, 4, 3),
]  # fmt: skip
WEIGHT_STEM = [
    Plan(2, 64, 16, 4, 3, 528), Plan(2, 64, 16, 4, 3, 264), Plan(2, 64, 8, 4, 3, 528), Plan(2, 32, 16, 4, 3, 528),
    Plan(4, 32, 16, 4, 3, 396), Plan(4, 64, 16, 8, 3, 264),
]  # fmt: skip
WEIGHT_WIDE = [Plan(1, 32, 16, 16, 3), Plan(1, 32, 16, 16, 4), Plan(1, 64, 16, 16, 2), Plan(1, 32, 8, 16, 3)]
GRIDS: dict[tuple[int, int], dict[str, list[Plan]]] = {
    (3, 16): {"forward": STEM, "weight": WEIGHT_STEM},
    (16, 32): {"forward": WALK, "input": WALK, "weight": WEIGHT_HALF},
    (32, 32): {"forward": WALK, "input": WALK, "weight": WEIGHT},
    (64, 64): {"forward": WIDE, "input": WIDE, "weight": WEIGHT_WIDE},
}


class Inputs(NamedTuple):
    x: Tensor
    weight: Tensor
    dy: Tensor


Shape = tuple[int, int, int]
Operation = Callable[[Inputs, Plan | None], Tensor]


def draw(shape: Shape, n: int, device: str) -> Inputs:
    n_in, n_out, side = shape
    generator = torch.Generator(device).manual_seed(0)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16

    def normal(*size: int) -> Tensor:
        drawn = torch.randn(size, generator=generator, device=device).to(dtype)
        return drawn.contiguous(memory_format=torch.channels_last)

    return Inputs(normal(n, n_in, side, side), normal(n_out, n_in, 3, 3), normal(n, n_out, side, side))


OURS: dict[str, Operation] = {
    "forward": lambda at, plan: conv_kernels.convolve(at.x, at.weight, plan),
    "input": lambda at, plan: conv_kernels.input_gradient(at.dy, at.weight, plan),
    "weight": lambda at, plan: conv_kernels.weight_gradient(at.dy, at.x, plan),
}


def library(operation: str, at: Inputs) -> Tensor:
    """The same with cuDNN."""
    if operation == "forward":
        return conv2d(at.x, at.weight, padding=1)
    return torch.ops.aten.convolution_backward(
        at.dy, at.x, at.weight, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
        [operation == "input", operation == "weight", False],
    )[0 if operation == "input" else 1]  # fmt: skip


def exact(operation: str, at: Inputs) -> Tensor:
    """The result in float32."""
    x, weight, dy = (tensor.float() for tensor in at)
    if operation == "input":
        return conv2d_input(x.shape, weight, dy, padding=1)
    if operation == "weight":
        return conv2d_weight(x, weight.shape, dy, padding=1)
    return conv2d(x, weight, padding=1)


def microseconds(call: Callable[[], Tensor], device: str) -> float:
    call()
    if device == "cpu":
        return 0.0
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    graph.replay()
    best = float("inf")
    for _ in range(REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, 1000 * start.elapsed_time(end) / CALLS)
    return best


Job = tuple[Shape, str, Plan | None]


def compile_one(device: str, job: Job) -> str:
    """Runs one job at a small size -> what went wrong, or nothing."""
    shape, operation, plan = job
    try:
        OURS[operation](draw(shape, 16 if device == "cuda" else 2, device), plan)
        if device == "cuda":
            torch.cuda.synchronize()
    except Exception as error:  # whatever the compiler or the driver says, the next plan may do
        return f"{type(error).__name__}: {str(error).splitlines()[0][:90] if str(error) else ''}"
    return ""


def name(shape: Shape, operation: str = "") -> str:
    return f"{shape[0]}->{shape[1]}@{shape[2]} {operation}".strip()


def list_jobs(shapes: list[Shape], only: str, plans: list[Plan | None]) -> list[Job]:
    return [
        (shape, operation, plan)
        for shape in shapes
        for operation, grid in GRIDS[shape[:2]].items()
        if name(shape, operation).startswith(only)
        for plan in plans or grid
    ]


def measure(shape: Shape, operation: str, plans: list[Plan | None], n: int, device: str) -> dict[str, Any]:
    """A row of the results, that of the fastest plan; prints the times of all."""
    at = draw(shape, n, device)
    wanted = exact(operation, at)
    times, errors = [], []
    for plan in plans:
        call = partial(OURS[operation], at, plan)
        errors.append(((call().float() - wanted).abs().max() / wanted.abs().max()).item())
        times.append(microseconds(call, device))
    theirs = microseconds(partial(library, operation, at), device)
    best = min(range(len(plans)), key=lambda i: (errors[i] > TOLERANCE, times[i]))
    listed = " ".join(f"{t:.0f}{'!' if e > TOLERANCE else ''}" for t, e in zip(times, errors, strict=True))
    chosen = plans[best] or default_plan(shape, operation, n)
    print(
        f"n={n} {name(shape, operation):22} cuDNN {theirs:6.1f}  ours {times[best]:6.1f}"
        f"  {tuple(chosen)}  error {errors[best]:.1e}  all {listed}",
        flush=True,
    )
    return {
        "shape": name(shape),
        "n": n,
        "operation": operation,
        "cudnn_us": round(theirs, 1),
        "ours_us": round(times[best], 1),
        "plan": ",".join(map(str, chosen)),
        "error": float(f"{errors[best]:.1e}"),
    }


def default_plan(shape: Shape, operation: str, n: int) -> Plan:
    """What the package chooses itself."""
    n_in, n_out, _ = shape
    if operation == "weight":
        return conv_kernels.weight_gradient_plan(n_in)
    return conv_kernels.convolve_plan(n, n_out if operation == "input" else n_in)


def write(rows: list[dict[str, Any]], device: str, out: Path) -> None:
    before = json.loads(out.read_text()) if out.is_file() else {}
    report = {
        "what": "3 x 3 convolutions, channels in -> channels out @ side, bfloat16: microseconds of cuDNN and of the "
        "fastest plan: span,places,strip,warps,stages,walkers",
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "commit": commit(),
        "rows": rows,
    }
    if "tried" in before:
        report["tried"] = before["tried"]
    write_results(out, report)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the JSON file to write; none by default")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--plans", default="", help="span,places,strip,warps,stages[,walkers] ...")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    device, shapes, batches, began = "cuda", SHAPES, BATCHES, time.perf_counter()
    if options.dry_run:
        device, shapes, batches = "cpu", [(n_in, n_out, 8) for n_in, n_out, _ in SHAPES], (2,)
    else:
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
    plans = [Plan(*map(int, plan.split(","))) for plan in options.plans.split()]
    jobs = list_jobs(shapes, options.only, [None] if options.quick else plans)
    if options.dry_run:
        failures = [compile_one(device, job) for job in jobs]
    else:
        n_workers = max(1, min(12, (os.cpu_count() or 1) - 2, len(jobs)))
        with multiprocessing.get_context("spawn").Pool(n_workers) as pool:
            failures = pool.map(partial(compile_one, device), jobs, chunksize=1)
    for job, failure in zip(jobs, failures, strict=True):
        if failure:
            print("left out", job, failure)
    print(f"compiled {len(jobs)} in {time.perf_counter() - began:.0f} s", flush=True)
    ready = [job for job, failure in zip(jobs, failures, strict=True) if not failure]
    rows = []
    for n in batches:
        for shape in shapes:
            for operation in GRIDS[shape[:2]]:
                compiled = [plan for s, o, plan in ready if (s, o) == (shape, operation)]
                if compiled:
                    rows.append(measure(shape, operation, compiled, n, device))
    if options.out:
        write(rows, device, options.out)
    print(f"{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()

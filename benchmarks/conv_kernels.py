"""The convolution kernels against cuDNN on one GPU: microseconds of each plan, one line a shape and operation.

    PYTHONPATH=src python benchmarks/conv_kernels.py [--quick] [--only "32->32@32 fused"] [--plans "2,64,32,8,3 ..."]

Shapes are those of WRN-28-2 in FixMatch's joint batch (960 images forward, 512 backward), bfloat16, channels-last.
"fused" is compared with the passes it replaces: normalise, convolve, add the shortcut and sum. Each time is that of a
captured graph of ten calls. Plans that fail to compile are left out; plans that err by more than a bfloat16 sum may are
marked with "!". Compiling is spread over processes, which leave their kernels in Triton's cache. --quick times the
plans that the package chooses itself, --plans others than those below, --only the lines that begin so. --dry-run goes
through the motions at a tiny size, for Triton's interpreter.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d
from torch.nn.grad import conv2d_input, conv2d_weight

from dpssl.nets import conv_kernels, norm_kernels
from dpssl.nets.conv_kernels import Plan
from dpssl.nets.norm_kernels import Norm, as_rows, like

SLOPE, CALLS, REPEATS, TOLERANCE = 0.1, 10, 5, 2e-2
SHAPES = [(3, 16, 32), (16, 32, 32), (32, 32, 32), (64, 64, 16)]  # channels in, channels out, side
BATCHES = (960, 512)

WALK = [
    Plan(2, 64, 32, 4, 3), Plan(2, 64, 16, 4, 3), Plan(2, 64, 32, 8, 3), Plan(2, 128, 32, 8, 3),
    Plan(1, 64, 32, 4, 3), Plan(1, 64, 32, 4, 4), Plan(1, 128, 32, 8, 3), Plan(2, 64, 32, 4, 2),
]  # fmt: skip
FUSED = [
    Plan(2, 64, 32, 8, 3), Plan(2, 64, 16, 8, 3), Plan(2, 64, 32, 4, 3), Plan(2, 64, 32, 8, 2),
    Plan(1, 64, 32, 4, 3), Plan(1, 64, 16, 4, 3), Plan(1, 64, 32, 4, 4), Plan(1, 128, 32, 8, 3),
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
    (3, 16): {"forward": STEM, "fused": STEM[:6], "weight": WEIGHT_STEM},
    (16, 32): {"forward": WALK, "fused": FUSED, "input": WALK, "weight": WEIGHT_HALF, "fused weight": WEIGHT_HALF[:4]},
    (32, 32): {"forward": WALK, "fused": FUSED, "input": WALK, "weight": WEIGHT, "fused weight": WEIGHT[:5]},
    (64, 64): {"forward": WIDE, "fused": WIDE, "input": WIDE, "weight": WEIGHT_WIDE},
}


class Inputs(NamedTuple):
    x: Tensor
    weight: Tensor
    dy: Tensor
    norm: Norm | None
    skip: Tensor | None


Shape = tuple[int, int, int]
Operation = Callable[[Inputs, Plan | None], Tensor]


def draw(shape: Shape, n: int, device: str) -> Inputs:
    n_in, n_out, side = shape
    generator = torch.Generator(device).manual_seed(0)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16

    def normal(*size: int) -> Tensor:
        drawn = torch.randn(size, generator=generator, device=device).to(dtype)
        return drawn.contiguous(memory_format=torch.channels_last)

    x, weight = normal(n, n_in, side, side), normal(n_out, n_in, 3, 3)
    dy, skip = normal(n, n_out, side, side), normal(n, n_out, side, side)
    norm = Norm(*torch.rand(4, n_in, generator=generator, device=device) + 0.5)
    return Inputs(x, weight, dy, norm if n_in > 3 else None, skip if n_in > 3 else None)  # the stem has neither


def activate(at: Inputs) -> Tensor:
    return at.x if at.norm is None else like(norm_kernels.normalize(as_rows(at.x), at.norm, SLOPE), at.x)


OURS: dict[str, Operation] = {
    "forward": lambda at, plan: conv_kernels.convolve(at.x, at.weight, plan=plan),
    "fused": lambda at, plan: conv_kernels.convolve_and_sum(at.x, at.weight, at.norm, SLOPE, at.skip, plan)[0],
    "input": lambda at, plan: conv_kernels.input_gradient(at.dy, at.weight, plan),
    "weight": lambda at, plan: conv_kernels.weight_gradient(at.dy, at.x, plan=plan),
    "fused weight": lambda at, plan: conv_kernels.weight_gradient(at.dy, at.x, at.norm, SLOPE, plan),
}


def library(operation: str, at: Inputs) -> Tensor:
    """The same with cuDNN and, where fused, the passes of norm_kernels."""
    a = activate(at) if operation.startswith("fused") else at.x
    if operation in ("forward", "fused"):
        y = conv2d(a, at.weight, padding=1)
        other = None if at.skip is None else as_rows(at.skip)
        return y if operation == "forward" else like(norm_kernels.add_and_sum(as_rows(y), other)[0], y)
    return torch.ops.aten.convolution_backward(
        at.dy, a, at.weight, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
        [operation == "input", operation != "input", False],
    )[0 if operation == "input" else 1]  # fmt: skip


def exact(operation: str, at: Inputs) -> Tensor:
    """The result in float32."""
    a, weight, dy = (activate(at) if operation.startswith("fused") else at.x).float(), at.weight.float(), at.dy.float()
    if operation == "input":
        return conv2d_input(a.shape, weight, dy, padding=1)
    if operation.endswith("weight"):
        return conv2d_weight(a, weight.shape, dy, padding=1)
    y = conv2d(a, weight, padding=1)
    return y if operation == "forward" or at.skip is None else y + at.skip.float()


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


def name(shape: Shape, operation: str) -> str:
    return f"{shape[0]}->{shape[1]}@{shape[2]} {operation}"


def list_jobs(shapes: list[Shape], only: str, plans: list[Plan | None]) -> list[Job]:
    return [
        (shape, operation, plan)
        for shape in shapes
        for operation, grid in GRIDS[shape[:2]].items()
        if name(shape, operation).startswith(only)
        for plan in plans or grid
    ]


def measure(shape: Shape, operation: str, plans: list[Plan | None], n: int, device: str) -> str:
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
    chosen = plans[best]
    return (
        f"n={n} {name(shape, operation):22} cuDNN {theirs:6.1f}  ours {times[best]:6.1f}"
        f"  {'default' if chosen is None else tuple(chosen)}  error {errors[best]:.1e}  all {listed}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--plans", default="", help="span,places,strip,warps,stages[,walkers] ...")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    device, shapes, batches, began = "cuda", SHAPES, BATCHES, time.perf_counter()
    if options.dry_run:
        conv_kernels._on_gpu = lambda x: True
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
    for n in batches:
        for shape in shapes:
            for operation in GRIDS[shape[:2]]:
                compiled = [plan for s, o, plan in ready if (s, o) == (shape, operation)]
                if compiled:
                    print(measure(shape, operation, compiled, n, device), flush=True)
    print(f"{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()

"""Where and in which number format training runs.

bfloat16 on a GPU; float32 on a CPU, where bfloat16 without matrix units is a hundred times slower.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dpssl.errors import DPSSLError, TrainingError

# How errors that are no torch.OutOfMemoryError say it: the driver's and Triton's, cuBLAS' and cuDNN's, the CPU's.
OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED", "can't allocate memory")


def pick_device(name: str) -> torch.device:
    """The device that `--device` names; `auto` takes a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        if not torch.cuda.is_available():
            raise TrainingError(
                "--device cuda: torch sees no GPU here; use --device cpu, or install a CUDA build of torch"
            )
        torch.backends.cudnn.benchmark = True  # shapes never change, so the search for the fastest kernel pays
        torch.set_float32_matmul_precision("high")
    return torch.device(name)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Context in which the backbone runs."""
    lower = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=lower)


def compiles(device: torch.device, wanted: bool) -> bool:
    """Whether torch.compile is to be used: where wanted, and on a GPU alone."""
    return wanted and device.type == "cuda"


@contextmanager
def batch_that_fits(flag: str, batch_size: int) -> Iterator[None]:
    """Turn running out of device memory into the advice that helps: which flag to lower, and to what."""
    try:
        yield
    except RuntimeError as problem:
        if isinstance(problem, DPSSLError) or not _ran_out_of_memory(problem):
            raise
        advice = f"try {flag} {max(1, batch_size // 2)} (now {batch_size})"
        raise TrainingError(f"the device ran out of memory: {advice}, or a smaller network (--width)") from problem


def _ran_out_of_memory(problem: BaseException | None) -> bool:
    """Whether it is about memory, or was raised on the way out of an error that is.

    A graph's capture that breaks off half-way ends with an error of its own, which hides the first.
    """
    while problem is not None:
        if isinstance(problem, torch.OutOfMemoryError) or any(words in str(problem) for words in OUT_OF_MEMORY):
            return True
        problem = problem.__cause__ or problem.__context__
    return False

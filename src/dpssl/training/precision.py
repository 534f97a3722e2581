"""Number formats: bfloat16 on a GPU, float32 on a CPU (bfloat16 without matrix units is a hundred times slower)."""

import torch

from dpssl.errors import InputError, TrainingError


def pick_device(name: str) -> torch.device:
    """The device that `--device` names; `auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise InputError(f"--device {name!r}: choose cpu, cuda or auto")
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainingError("--device cuda: torch sees no GPU here; use --device cpu, or install a CUDA build of torch")
    return torch.device(name)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Context in which the backbone runs."""
    if precision not in ("auto", "float32", "bfloat16"):
        raise InputError(f"--precision {precision!r}: choose float32, bfloat16 or auto")
    lower = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=lower)

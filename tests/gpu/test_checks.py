"""The checks of run_checks.py under pytest: on a GPU all of them, on a CPU a few, so that the script stays in order."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_checks", Path(__file__).with_name("run_checks.py"))
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


SCRIPT = load_script()
QUICK = ("augmentation", "out-of-memory", "messages")  # the others have tests of their own there


@pytest.mark.gpu
@pytest.mark.parametrize("name", SCRIPT.CHECKS)
def test_on_a_gpu(name: str) -> None:
    SCRIPT.CHECKS[name](torch.device("cuda"))


@pytest.mark.parametrize("name", [name for name in SCRIPT.CHECKS if name.startswith(QUICK)])
def test_on_the_cpu(name: str) -> None:
    SCRIPT.CHECKS[name](torch.device("cpu"))

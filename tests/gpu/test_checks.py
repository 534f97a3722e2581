"""The checks of run_checks.py under pytest: on a GPU all of them, on a CPU a few, so that the script stays in order."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from dpssl.training import stage
from dpssl.training.step import TrainStep

sys.path.insert(0, str(Path(__file__).parent))  # as for a script
run_checks = importlib.import_module("run_checks")
tiny_runs = importlib.import_module("tiny_runs")
sys.path.pop(0)

QUICK = ("augmentation", "out-of-memory", "messages")  # the others have tests of their own there


@pytest.mark.gpu
@pytest.mark.parametrize("name", run_checks.CHECKS)
def test_on_a_gpu(name: str) -> None:
    run_checks.CHECKS[name](torch.device("cuda"))


@pytest.mark.parametrize("name", [name for name in run_checks.CHECKS if name.startswith(QUICK)])
def test_on_the_cpu(name: str) -> None:
    run_checks.CHECKS[name](torch.device("cpu"))


class OneUpdateTooMany(TrainStep):
    def run(self, learning_rate: float) -> None:
        super().run(learning_rate)
        if self._n_summed == 1:
            self._once()


class OneDrawTooMany(TrainStep):
    def run(self, learning_rate: float) -> None:
        torch.rand(1, generator=self.state.generator)
        super().run(learning_rate)


@pytest.mark.parametrize("kind", [OneUpdateTooMany, OneDrawTooMany])
def test_what_a_gpu_is_allowed_still_tells_a_wrong_step_apart(
    monkeypatch: pytest.MonkeyPatch, kind: type[TrainStep]
) -> None:
    cpu = torch.device("cpu")
    right, elsewhere = tiny_runs.train(cpu), tiny_runs.train_elsewhere(cpu)
    monkeypatch.setattr(stage, "TrainStep", kind)
    wrong = tiny_runs.train(cpu)
    with pytest.raises(AssertionError, match="a wrong step: weights differ"):
        tiny_runs.require_same(torch.device("cuda"), "a wrong step", right, [wrong], elsewhere)

"""Every method trains on the shared loop, and one that was stopped ends where an unbroken one does."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dpssl.baselines.registry import SYSTEMS, as_given, method_settings
from dpssl.baselines.trainer import Trained, train_baseline
from dpssl.config import DP_SSL, METHODS, Config
from dpssl.data.batches import ImageBank
from dpssl.errors import InputError
from dpssl.training.step import TrainState
from dpssl.training.watch import StopRequested, Watch

Digits = tuple[ImageBank, Tensor]
MakeConfig = Callable[..., Config]
FIELDS = {"loss", "labeled_loss", "unlabeled_loss", "pseudo_label_rate"}  # that every method logs
EVERY_METHOD = [(method, ()) for method in SYSTEMS] + [("uda", ("annealing=log",))]


def state(trained: Trained) -> dict[str, Tensor]:
    return {**trained.network.state_dict(), **{f"system.{k}": v for k, v in trained.system.state_dict().items()}}


class LogWatch(Watch):
    """Keeps what was logged; asks for a stop after some windows."""

    def __init__(self, folder: Path | None = None, n_windows: int = 0) -> None:
        super().__init__(folder, progress=False)
        self.n_windows, self.lines = n_windows, []

    def after_window(self, stage: str, step: int, metrics: Any, state: TrainState, notes: Any) -> None:
        self.lines.append((step, dict(metrics)))
        self.stop_requested = len(self.lines) == self.n_windows
        super().after_window(stage, step, metrics, state, notes)


def test_every_name_has_its_system() -> None:
    assert set(METHODS) == {DP_SSL, *SYSTEMS}


@pytest.mark.parametrize("method", SYSTEMS)
def test_trains_on_digits(digits: Digits, tiny_config: MakeConfig, method: str) -> None:
    bank, given = digits
    watch = LogWatch()
    trained = train_baseline(bank, given, 3, tiny_config(method), watch)
    assert [step for step, _ in watch.lines] == [2, 4, 6]
    for _, metrics in watch.lines:
        assert metrics.keys() >= FIELDS
        assert all(map(torch.isfinite, map(torch.tensor, metrics.values())))
    learns_from_all = {"pi-model": 1, "mean-teacher": 1, "mixmatch": 1, "remixmatch": 1, "supervised": 0}
    if method in learns_from_all:
        assert metrics["pseudo_label_rate"] == learns_from_all[method]
    logits = trained.network(bank.network_input(bank.images))
    assert logits.shape == (90, 3)
    trusted = trained.system.trusts(torch.softmax(logits, -1))
    assert trusted is None or trusted.shape == (90,)


@pytest.mark.parametrize(("method", "given"), EVERY_METHOD)
def test_stopped_and_resumed_is_unbroken(
    digits: Digits, tiny_config: MakeConfig, tmp_path: Path, method: str, given: tuple[str, ...]
) -> None:
    config = tiny_config(method, *given)
    unbroken = state(train_baseline(*digits, 3, config, Watch(progress=False)))
    with pytest.raises(StopRequested):
        train_baseline(*digits, 3, config, LogWatch(tmp_path, n_windows=2))
    resumed = state(train_baseline(*digits, 3, config, LogWatch(tmp_path)))
    for name, tensor in unbroken.items():
        assert torch.equal(tensor, resumed[name]), name


@pytest.mark.parametrize("method", SYSTEMS)
def test_settings_survive_being_written_down(method: str) -> None:
    settings = method_settings(method, [])
    assert method_settings(method, as_given(settings)) == settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("treshold=0.9", "did you mean threshold"),
        ("colour=1", "fixmatch has threshold, unlabeled_weight"),
        ("threshold", "write name=value"),
        ("threshold=high", "expected float, got 'high'"),
        ("threshold=2", "--method-settings threshold 2.0: must be at most 1"),
    ],
)
def test_settings_that_cannot_be(given: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        method_settings("fixmatch", [given])


def test_a_method_without_settings_says_so() -> None:
    for method in ("supervised", DP_SSL):
        with pytest.raises(InputError, match=f"{method} has no settings of this kind"):
            method_settings(method, ["threshold=1"])


def test_images_that_are_streamed(digits: Digits, tiny_config: MakeConfig) -> None:
    """Every method trains on them but the one that chooses images itself, which says how to go on."""
    bank, given = digits
    streamed = dataclasses.replace(
        bank, images=bank.images.contiguous(memory_format=torch.channels_last), streamed=True
    )
    train_baseline(streamed, given, 3, tiny_config("flexmatch", steps=2), Watch(progress=False))
    with pytest.raises(InputError, match=r"--method usadtm: chooses images .* --image-memory device"):
        train_baseline(streamed, given, 3, tiny_config("usadtm", steps=2), Watch(progress=False))
    train_baseline(streamed, given, 3, tiny_config("usadtm", "n_joining=0", steps=2), Watch(progress=False))

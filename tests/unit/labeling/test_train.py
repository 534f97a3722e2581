"""Step 1 stopped at any window and resumed is step 1 unbroken."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dpssl.config import Config
from dpssl.data.batches import ImageBank
from dpssl.errors import InputError
from dpssl.labeling import train
from dpssl.labeling.objective import SemiSupervised
from dpssl.labeling.train import train_lfs
from dpssl.training.watch import StopRequested, Watch

Digits = tuple[ImageBank, Tensor]
MakeConfig = Callable[..., Config]
UNBROKEN = [("mcl", 3), ("mcl", 6), ("mcl", 9), ("lfs", 3), ("lfs", 6)]  # converged at step 9 of at most 30


class Killed(Exception):
    """Stands for SIGKILL: nothing after it is written."""


class BrokenWatch(Watch):
    """Counts windows; at `n_windows` the run is asked to stop, or killed just after its checkpoint."""

    def __init__(self, folder: Path, n_windows: int | None = None, how: str = "stop") -> None:
        super().__init__(folder, {"seed": 1}, checkpoint_minutes=0, progress=False)
        self.n_windows, self.how = n_windows, how
        self.windows: list[tuple[str, int]] = []

    def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
        self.windows.append((stage, step))
        reached = len(self.windows) == self.n_windows
        self.stop_requested = reached and self.how == "stop"
        super().after_window(stage, step, metrics, state, notes)
        if reached:
            raise Killed


@pytest.fixture(scope="module")
def unbroken(digits: Digits, tiny_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    watch = BrokenWatch(tmp_path_factory.mktemp("unbroken"))
    network = train_lfs(*digits, 3, tiny_config(), watch)
    assert watch.windows == UNBROKEN
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize(("setting", "shares"), [("1,2,5", [0.125, 0.25, 0.625]), ("estimated", [1 / 3] * 3)])
def test_predictions_are_aligned_to_the_class_prior(
    setting: str, shares: list[float], digits: Digits, tiny_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An LF that may name every class should name each as often as its share; the labels here are balanced."""
    balances: list[Tensor] = []

    class Noting(SemiSupervised):
        def __init__(self, network: Any, settings: Any, class_balance: Tensor) -> None:
            super().__init__(network, settings, class_balance)
            balances.append(class_balance)

    monkeypatch.setattr(train, "SemiSupervised", Noting)
    train_lfs(*digits, 3, tiny_config(class_prior=setting, alignment=True), Watch(progress=False))
    assert balances[0].tolist() == pytest.approx(shares)


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("n_windows", range(1, len(UNBROKEN) + 1))
def test_stopped_and_resumed_is_unbroken(
    digits: Digits, tiny_config: MakeConfig, unbroken: dict[str, Tensor], tmp_path: Path, n_windows: int, how: str
) -> None:
    with pytest.raises(StopRequested if how == "stop" else Killed):
        train_lfs(*digits, 3, tiny_config(), BrokenWatch(tmp_path, n_windows, how))
    rest = BrokenWatch(tmp_path)
    resumed = train_lfs(*digits, 3, tiny_config(), rest).state_dict()
    assert rest.windows == UNBROKEN[n_windows:]
    for name, tensor in unbroken.items():
        assert torch.equal(tensor, resumed[name]), name


def test_interrupted_again_and_again(
    digits: Digits, tiny_config: MakeConfig, unbroken: dict[str, Tensor], tmp_path: Path
) -> None:
    for _ in UNBROKEN:
        with pytest.raises(StopRequested):
            train_lfs(*digits, 3, tiny_config(), BrokenWatch(tmp_path, n_windows=1))
    resumed = train_lfs(*digits, 3, tiny_config(), BrokenWatch(tmp_path)).state_dict()
    for name, tensor in unbroken.items():
        assert torch.equal(tensor, resumed[name]), name


def test_streamed_images_train_the_same_network(
    digits: Digits, tiny_config: MakeConfig, unbroken: dict[str, Tensor], tmp_path: Path
) -> None:
    images = digits[0].images.permute(0, 2, 3, 1).numpy()
    bank = ImageBank.from_numpy(images, torch.device("cpu"), "stream")
    with pytest.raises(StopRequested):
        train_lfs(bank, digits[1], 3, tiny_config(), BrokenWatch(tmp_path, n_windows=4))
    resumed = train_lfs(bank, digits[1], 3, tiny_config(), BrokenWatch(tmp_path)).state_dict()
    for name, tensor in unbroken.items():
        assert torch.equal(tensor, resumed[name]), name


def test_every_labelled_image_is_given_and_no_other_label_is_read(
    digits: Digits, tiny_config: MakeConfig, unbroken: dict[str, Tensor]
) -> None:
    """Another label for one given image changes the result; there is nothing else to change."""
    bank, given = digits
    altered = given.clone()
    altered[(given >= 0).nonzero()[0]] = (altered[(given >= 0).nonzero()[0]] + 1) % 3
    network = train_lfs(bank, altered, 3, tiny_config(), Watch(progress=False))
    assert not torch.equal(network.heads.weight, unbroken["heads.weight"])


def test_an_impossible_ratio_is_refused_before_any_training(digits: Digits, tiny_config: MakeConfig) -> None:
    with pytest.raises(InputError, match=r"--specialist-ratio 0\.1 with --n-lfs 5"):
        train_lfs(*digits, 3, tiny_config(specialist_ratio=0.1), Watch(progress=False))


def test_minimum_of_specialists(digits: Digits, tiny_config: MakeConfig) -> None:
    network = train_lfs(*digits, 3, tiny_config(min_specialists=3), Watch(progress=False))
    assert (network.specialties.sum(0) >= 3).all()


def test_rgb_and_other_sizes(tiny_config: MakeConfig) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (12, 10, 7, 3), generator=generator, dtype=torch.uint8).numpy()
    bank = ImageBank.from_numpy(images, torch.device("cpu"))
    given = torch.tensor([0, 1, 2] + [-1] * 9)
    network = train_lfs(bank, given, 3, tiny_config(steps=2), Watch(progress=False))
    assert network(bank.network_input(bank.images)).shape == (12, 5, 4)

"""Wherever training runs out of device memory, it says which batch to lower: in its set-up as in a step."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import dpssl.baselines.trainer
import dpssl.end_model.train
import dpssl.labeling.train
from dpssl.config import Config, with_values
from dpssl.data.batches import ImageBank
from dpssl.errors import TrainingError
from dpssl.training.step import TrainStep
from dpssl.training.watch import Watch

GIVEN = torch.tensor([0, 1, -1, -1])
CONFIG = with_values(
    Config(),
    {"depth": 10, "width": 1, "n_lfs": 4, "specialist_ratio": 0.5, "batch_size": 4, "end_batch_size": 6}
    | {"unlabeled_ratio": 1, "end_unlabeled_ratio": 1, "method": "fixmatch"},
)


def run_out(*_: object, **__: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB")


def train_lfs(bank: ImageBank) -> None:
    dpssl.labeling.train.train_lfs(bank, GIVEN, 2, CONFIG, Watch(progress=False))


def train_end_model(bank: ImageBank) -> None:
    soft_labels, covered = torch.full((4, 2), 0.5), torch.ones(4, dtype=torch.bool)
    dpssl.end_model.train.train_end_model(bank, GIVEN, soft_labels, covered, CONFIG, Watch(progress=False))


def train_baseline(bank: ImageBank) -> None:
    dpssl.baselines.trainer.train_baseline(bank, GIVEN, 2, CONFIG, Watch(progress=False))


@pytest.mark.parametrize("place", ["set-up", "step"])
@pytest.mark.parametrize(
    ("train", "advice"),
    [
        (train_lfs, "try --batch-size 2 (now 4)"),
        (train_end_model, "try --end-batch-size 3 (now 6)"),
        (train_baseline, "try --batch-size 2 (now 4)"),
    ],
)
def test_the_batch_to_lower_is_named(
    monkeypatch: pytest.MonkeyPatch, place: str, train: Callable[[ImageBank], None], advice: str
) -> None:
    if place == "step":
        monkeypatch.setattr(TrainStep, "run", run_out)
    else:
        for module in (dpssl.labeling.train, dpssl.end_model.train, dpssl.baselines.trainer):
            monkeypatch.setattr(module, "FlatSGD", run_out)
    bank = ImageBank.from_numpy(np.zeros((4, 8, 8, 3), np.uint8), torch.device("cpu"))
    with pytest.raises(TrainingError) as raised:
        train(bank)
    assert advice in str(raised.value)


def test_images_that_do_not_fit_can_be_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "to", run_out)
    with pytest.raises(TrainingError, match=r"10 MiB of images .* --image-memory stream"):
        ImageBank.from_numpy(np.zeros((10, 1024, 1024, 1), np.uint8), torch.device("cpu"), "device")

"""Step 3 stopped at any window and resumed is step 3 unbroken."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpssl.config import Config, with_values
from dpssl.data.batches import ImageBank
from dpssl.end_model.predict import embed, predict_probabilities
from dpssl.end_model.train import build_classifier, train_end_model
from dpssl.training.watch import StopRequested, Watch

CONFIG = with_values(
    Config(),
    {
        "depth": 10, "width": 1, "strides": (1, 2, 1), "window": 2, "end_steps": 6, "end_batch_size": 4,
        "end_unlabeled_ratio": 2,
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def task() -> tuple[ImageBank, Tensor, Tensor, Tensor]:
    """Noise as images, with given labels, soft labels and which of them are covered."""
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 1), dtype=np.uint8)
    soft_labels = torch.rand(20, 3, generator=torch.Generator().manual_seed(0))
    given = torch.tensor([0, 1, 2] + [-1] * 17)
    bank = ImageBank.from_numpy(images, torch.device("cpu"))
    return bank, given, soft_labels / soft_labels.sum(1, keepdim=True), torch.arange(20) % 4 > 0


class StopAt(Watch):
    def __init__(self, folder: Path, step: int | None) -> None:
        super().__init__(folder, {"seed": 1}, checkpoint_minutes=1000, progress=False)
        self.step = step

    def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
        self.stop_requested = step == self.step
        super().after_window(stage, step, metrics, state, notes)


@pytest.mark.parametrize("stop", [2, 4, 6])
def test_stopped_and_resumed_is_unbroken(
    task: tuple[ImageBank, Tensor, Tensor, Tensor], tmp_path: Path, stop: int
) -> None:
    unbroken = train_end_model(*task, CONFIG, Watch(progress=False)).state_dict()
    with pytest.raises(StopRequested):
        train_end_model(*task, CONFIG, StopAt(tmp_path, stop))
    resumed = train_end_model(*task, CONFIG, StopAt(tmp_path, None)).state_dict()
    for name, tensor in unbroken.items():
        assert torch.equal(tensor, resumed[name]), name


def test_predictions_do_not_depend_on_the_chunks(
    task: tuple[ImageBank, Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = build_classifier(CONFIG, 3, 1).eval()
    whole, features = predict_probabilities(network, task[0]), embed(network, task[0])
    monkeypatch.setattr("dpssl.training.answers.CHUNK", 7)
    torch.testing.assert_close(predict_probabilities(network, task[0]), whole)
    torch.testing.assert_close(embed(network, task[0]), features)
    assert features.shape == (20, network.backbone.n_features)

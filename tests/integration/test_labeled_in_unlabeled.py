"""`--labeled-in-unlabeled`: whether labelled images are also drawn as unlabelled ones, in every kind of training."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpssl.baselines.trainer import train_baseline
from dpssl.config import Config, with_values
from dpssl.data.augment import Augmenter
from dpssl.data.batches import ImageBank
from dpssl.end_model.train import train_end_model
from dpssl.labeling.train import train_lfs
from dpssl.training.watch import Watch

WHITE = 255
SMALL = {
    "depth": 10, "width": 1, "strides": (1, 2, 1), "n_lfs": 4, "specialist_ratio": 0.5, "mcl_max_steps": 2,
    "mcl_min_steps": 1, "steps": 4, "end_steps": 4, "window": 2, "mcl_window": 2, "batch_size": 6, "unlabeled_ratio": 4,
    "end_batch_size": 6, "end_unlabeled_ratio": 4, "method": "fixmatch",
}  # fmt: skip


@pytest.mark.parametrize("what", ["step 1", "step 3", "a baseline"])
@pytest.mark.parametrize("drawn", [True, False])
def test_labelled_images_are_drawn_as_unlabelled_ones_unless_told_not_to(
    what: str, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the images are labelled and white; only unlabelled ones get a strong view."""
    images = np.random.default_rng(0).integers(0, WHITE, (20, 8, 8, 1), dtype=np.uint8)
    images[::2] = WHITE
    given = torch.where(torch.arange(20) % 2 == 0, torch.arange(20) // 2 % 2, -1)
    bank = ImageBank.from_numpy(images, torch.device("cpu"))
    config = with_values(Config(), {**SMALL, "labeled_in_unlabeled": drawn})
    seen: list[Tensor] = []
    strong = Augmenter.strong

    def note(self: Augmenter, views: Tensor, *rest: Any) -> Tensor:
        seen.append(views)
        return strong(self, views, *rest)

    monkeypatch.setattr(Augmenter, "strong", note)
    if what == "step 1":
        train_lfs(bank, given, 2, config, Watch(progress=False))
    elif what == "a baseline":
        train_baseline(bank, given, 2, config, Watch(progress=False))
    else:
        soft_labels, covered = torch.full((20, 2), 0.5), torch.ones(20, dtype=torch.bool)
        train_end_model(bank, given, soft_labels, covered, config, Watch(progress=False))
    white = (torch.cat(seen) == WHITE).flatten(1).all(1)
    assert white.any() if drawn else not white.any()

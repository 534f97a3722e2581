"""How fast this machine trains: a few real steps of step 1, timed and thrown away.

Comes in: a configuration, images and given labels. Goes out: seconds an image of a training step takes. The steps run
on a sample of the images cut to the wanted side (what is in them does not change the time) with generators of their
own, so the run that follows is the same as without them.
"""

import time
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpssl.config import Config, with_values
from dpssl.constants import UNLABELED
from dpssl.data.batches import ImageBank
from dpssl.data.table import Images, Labels
from dpssl.labeling.train import STAGE_SSL, train_lfs
from dpssl.plan import images_of_all_runs
from dpssl.training.watch import StopRequested, Watch

N_SAMPLED = 512  # images, of either kind
MOST_STEPS, LEAST_STEPS, LEAST_SECONDS = 60, 3, 3.0  # timed: until both least are met, or the most
LONG_RUN = 2e9  # pixels of training; a run of fewer is over before an estimate of it would be worth its seconds
PATIENCE = 30  # minutes; longer on a CPU is worth a warning


def hours_ahead(config: Config, images: Images, given_labels: Labels, device: torch.device) -> str:
    """How long a run takes that is made for a GPU and meets a CPU, in words; empty where nobody need be warned."""
    side, n_images = max(images.shape[1:3]), images_of_all_runs(config, len(images))
    if device.type != "cpu" or n_images * side * side < LONG_RUN:
        return ""
    few = with_values(config, {"batch_size": 2})  # a step of the real size may take a minute
    minutes = n_images * seconds_per_image(few, images, given_labels, side, device) / 60
    if minutes <= PATIENCE:
        return ""
    return f"{minutes / 60:.0f} hours" if minutes > 120 else f"{minutes:.0f} minutes"


def seconds_per_image(config: Config, images: Images, given_labels: Labels, side: int, device: torch.device) -> float:
    """Mean seconds of a step of step 1 over the images it passes through the network."""
    rows = _sample(given_labels)
    pixels = np.ascontiguousarray(images[rows, :side, :side])
    few_steps = {"mcl_max_steps": 1, "mcl_window": 1, "steps": MOST_STEPS, "propagation_steps": 0, "window": 1}
    brief = with_values(config, few_steps)
    clock = _Clock()
    labels, n_classes = torch.from_numpy(given_labels[rows]), int(given_labels.max()) + 1
    even = np.full(n_classes, 1 / n_classes)  # a sample may have no label of some class to take its share from
    with suppress(StopRequested):
        train_lfs(ImageBank.from_numpy(pixels, device), labels, n_classes, brief, clock, class_shares=even)
    n_images = config.labeling.batch_size * (1 + 2 * config.labeling.unlabeled_ratio)
    return clock.seconds_per_step() / n_images


class _Clock(Watch):
    """Notes when each step ended, and asks to stop when that is enough. The first step is a warm-up."""

    def __init__(self) -> None:
        super().__init__(progress=False)
        self.ends: list[float] = []

    def after_window(self, stage: str, *window: Any) -> None:
        if stage == STAGE_SSL:
            self.ends.append(time.monotonic())
            enough = len(self.ends) > LEAST_STEPS and self.ends[-1] - self.ends[0] >= LEAST_SECONDS
            self.stop_requested = enough
        super().after_window(stage, *window)

    def seconds_per_step(self) -> float:
        return (self.ends[-1] - self.ends[0]) / (len(self.ends) - 1)


def _sample(given_labels: Labels) -> NDArray[np.int64]:
    """Rows of labelled and unlabelled images, evenly spaced."""
    kinds = (np.flatnonzero(given_labels != UNLABELED), np.flatnonzero(given_labels == UNLABELED))
    return np.sort(np.concatenate([rows[:: -(-max(1, len(rows)) // N_SAMPLED)] for rows in kinds]))

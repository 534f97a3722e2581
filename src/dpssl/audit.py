"""What a run's own networks say against its labels. It needs no truth, so that a new run may go by it.

Two signs of something wrong that a run is sure of: classes that change places with the size of the images
(`end_model.sizes`), and kinds of image that the rest of their class does not explain (`end_model.kinds`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpssl.data.batches import ImageBank
from dpssl.end_model.kinds import explained, kinds_of, least_explained
from dpssl.end_model.predict import embed
from dpssl.end_model.sizes import images_to_ask, told_apart_by_size
from dpssl.end_model.storage import END_MODEL, load_end_model
from dpssl.nets.backbones import build_backbone, start_backbone
from dpssl.nets.classifier import Classifier
from dpssl.runs import Run
from dpssl.warm_start import BACKBONE


def pairs_told_apart_by_size(run: Run, device: torch.device) -> list[dict[str, Any]]:
    """The pairs of classes that the run's end model tells apart by how much of the image they fill."""
    model = load_end_model(run.folder, device)
    rows = images_to_ask(run.split.unlabeled, run.dataset.n_classes)
    shown = model.bank.with_images(run.dataset.images[rows], run.config.run.image_memory)
    return told_apart_by_size(model.network, shown)


def pairs_without_say(runs: Sequence[Run], device: torch.device) -> list[list[tuple[int, int]]]:
    """For each of `runs` the pairs of classes that it tells apart by size, but for those that every run does."""
    told_apart = [
        {(min(pair["near"], pair["far"]), max(pair["near"], pair["far"])) for pair in found}
        for found in (pairs_told_apart_by_size(run, device) if run.folder.has(END_MODEL) else [] for run in runs)
    ]
    by_all = set.intersection(*told_apart)
    return [sorted(pairs - by_all) for pairs in told_apart]


def has_warm_start(run: Run) -> bool:
    """Whether the run began with weights that no label of it has touched: from its images alone, or from a file."""
    return run.folder.has(BACKBONE) or bool(run.config.backbone.backbone_weights)


@dataclass(frozen=True)
class Kinds:
    """The kinds of image of a run, and how far the rest of its class explains each."""

    rows: NDArray[np.int64]  # of the unlabelled images with a vote
    labels: NDArray[np.int64]  # theirs by the run
    kinds: NDArray[np.int64]  # theirs
    explained: NDArray[np.float64]  # of each kind


def kinds_of_run(run: Run, device: torch.device, features: NDArray[np.float32]) -> Kinds:
    """What is near is looked up in `features` (n, D), those of `start_features`."""
    model = load_end_model(run.folder, device)
    file = run.folder.read_soft_labels(run.dataset.ids)
    rows = run.split.unlabeled[file.covered[run.split.unlabeled]]
    labels = file.soft_labels[rows].argmax(1)
    shown = model.bank.with_images(run.dataset.images[rows], run.config.run.image_memory)
    kinds = kinds_of(embed(model.network, shown).numpy(), labels)
    return Kinds(rows, labels, kinds, explained(features[rows], labels, kinds, device))


def unexplained_images(run: Run, device: torch.device, share: float) -> NDArray[np.bool_]:
    """(n,) true for images of the kinds that the rest of their class explains least, `share` of them at most."""
    found = kinds_of_run(run, device, start_features(run, device))
    is_unexplained = np.zeros(len(run.dataset.ids), dtype=np.bool_)
    is_unexplained[found.rows[least_explained(found.explained, found.kinds, share)]] = True
    return is_unexplained


def start_features(run: Run, device: torch.device) -> NDArray[np.float32]:
    """(n, D) of the backbone as it was before it saw a label, where the run has a warm start."""
    n_channels = run.dataset.images.shape[-1]
    backbone = build_backbone(run.config.backbone, n_channels)
    if run.folder.has(BACKBONE):
        backbone.load_state_dict(run.folder.read_safetensors(BACKBONE)[0])
    else:
        start_backbone(backbone, run.config.backbone, n_channels, torch.Generator())
    network = Classifier(backbone, run.dataset.n_classes).to(device).eval()
    bank = ImageBank.from_numpy(run.dataset.images, device, run.config.run.image_memory)
    return np.asarray(embed(network, bank).float().numpy())

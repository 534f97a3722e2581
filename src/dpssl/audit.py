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
from dpssl.label_model.together import taken_together
from dpssl.nets.backbones import build_backbone, start_backbone
from dpssl.nets.classifier import Classifier
from dpssl.runs import Run
from dpssl.warm_start import BACKBONE


def pairs_told_apart_by_size(run: Run, device: torch.device, memory: str) -> list[dict[str, Any]]:
    """The pairs of classes that the run's end model tells apart by how much of the image they fill."""
    model = load_end_model(run.folder, device)
    rows = images_to_ask(run.split.unlabeled, run.dataset.n_classes)
    return told_apart_by_size(model.network, model.bank.with_images(run.dataset.images[rows], memory))


def pairs_without_say(runs: Sequence[Run], device: torch.device, memory: str) -> list[list[tuple[int, int]]]:
    """For each of `runs` the pairs of classes that it tells apart by size.

    Where that would leave two classes to no run at all, all runs are heard about them and what is joined to them.
    """
    told_apart = [
        sorted({(min(pair["near"], pair["far"]), max(pair["near"], pair["far"])) for pair in found})
        for found in (
            pairs_told_apart_by_size(run, device, memory) if run.folder.has(END_MODEL) else [] for run in runs
        )
    ]
    together = np.stack([taken_together(pairs, runs[0].dataset.n_classes) for pairs in told_apart])  # (R, C, C)
    left_to_none = together.all(axis=0).sum(axis=1) > 1  # (C,)
    heard = (together & left_to_none).any(axis=2)  # (R, C) what is joined to these
    return [[pair for pair in pairs if not of_all[pair[0]]] for pairs, of_all in zip(told_apart, heard, strict=True)]


def knows_its_kinds(run: Run) -> bool:
    """Whether the run has an end model, and began with weights that no label has touched: learnt, or from a file."""
    began = run.folder.has(BACKBONE) or bool(run.config.backbone.backbone_weights)
    return began and run.folder.has(END_MODEL)


@dataclass(frozen=True)
class Kinds:
    """The kinds of image of a run, and how far the rest of its class explains each."""

    rows: NDArray[np.int64]  # of the unlabelled images with a vote
    labels: NDArray[np.int64]  # theirs by the run
    kinds: NDArray[np.int64]  # theirs
    explained: NDArray[np.float64]  # of each kind


def kinds_of_run(run: Run, features: NDArray[np.float32], device: torch.device, memory: str) -> Kinds:
    """What is near is looked up in `features` (n, D), those of `start_features`."""
    model = load_end_model(run.folder, device)
    file = run.folder.read_soft_labels(run.dataset.ids)
    rows = run.split.unlabeled[file.covered[run.split.unlabeled]]
    labels = file.soft_labels[rows].argmax(1)
    embeddings = embed(model.network, model.bank.with_images(run.dataset.images, memory)).numpy()
    kinds = kinds_of(embeddings[rows], labels)
    return Kinds(rows, labels, kinds, explained(features[rows], labels, kinds, device))


def unexplained_images(run: Run, share: float, device: torch.device, memory: str) -> NDArray[np.bool_]:
    """(n,) true for images of the kinds that the rest of their class explains least, `share` of them at most."""
    found = kinds_of_run(run, start_features(run, device, memory), device, memory)
    is_unexplained = np.zeros(len(run.dataset.ids), dtype=np.bool_)
    is_unexplained[found.rows[least_explained(found.explained, found.kinds, share)]] = True
    return is_unexplained


def start_features(run: Run, device: torch.device, memory: str) -> NDArray[np.float32]:
    """(n, D) of the backbone as it was before it saw a label, where the run has a warm start."""
    n_channels = run.dataset.images.shape[-1]
    backbone = build_backbone(run.config.backbone, n_channels)
    if run.folder.has(BACKBONE):
        backbone.load_state_dict(run.folder.read_safetensors(BACKBONE)[0])
    else:
        start_backbone(backbone, run.config.backbone, n_channels, torch.Generator())
    network = Classifier(backbone, run.dataset.n_classes).to(device).eval()
    bank = ImageBank.from_numpy(run.dataset.images, device, memory)
    return np.asarray(embed(network, bank).float().numpy())

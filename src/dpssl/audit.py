"""What a run's own networks say against its labels. It needs no truth, so that a new run may go by it.

Two signs of something wrong that a run is sure of: classes that change places with the size of the images
(`end_model.sizes`), and kinds of image that the rest of their class does not explain (`end_model.kinds`).
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpssl.data.batches import ImageBank
from dpssl.end_model.kinds import explained, kinds_of, least_explained
from dpssl.end_model.predict import embed
from dpssl.end_model.sizes import images_to_ask, told_apart_by_size
from dpssl.end_model.storage import load_end_model
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


def has_warm_start(run: Run) -> bool:
    """Whether the run began with weights that no label of it has touched: from its images alone, or from a file."""
    return run.folder.has(BACKBONE) or bool(run.config.backbone.backbone_weights)


def unexplained_images(run: Run, device: torch.device, share: float) -> NDArray[np.bool_]:
    """(n,) true for images of the kinds that the rest of their class explains least, at most `share` of the labelled.

    Of a run with a warm start: what is near is looked up in its features.
    """
    model = load_end_model(run.folder, device)
    bank = model.bank.with_images(run.dataset.images, run.config.run.image_memory)
    file = run.folder.read_soft_labels(run.dataset.ids)
    rows = run.split.unlabeled[file.covered[run.split.unlabeled]]
    labels = file.soft_labels[rows].argmax(1)
    kinds = kinds_of(embed(model.network, bank).numpy()[rows], labels)
    share_of_kind = explained(_start_features(run, bank)[rows], labels, kinds, device)
    found = np.zeros(len(run.dataset.ids), dtype=np.bool_)
    found[rows[least_explained(share_of_kind, kinds, share)]] = True
    return found


def _start_features(run: Run, bank: ImageBank) -> NDArray[np.float32]:
    """(n, D) of the backbone as it was before it saw a label."""
    n_channels = run.dataset.images.shape[-1]
    backbone = build_backbone(run.config.backbone, n_channels)
    if run.folder.has(BACKBONE):
        backbone.load_state_dict(run.folder.read_safetensors(BACKBONE)[0])
    else:
        start_backbone(backbone, run.config.backbone, n_channels, torch.Generator())
    network = Classifier(backbone, run.dataset.n_classes).to(bank.device).eval()
    return np.asarray(embed(network, bank).float().numpy())

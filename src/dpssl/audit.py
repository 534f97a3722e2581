"""What a run's own networks say against its labels. It needs no truth, so that a new run may go by it.

Two signs of something wrong that a run is sure of: classes that change places with the size of the images
(`end_model.sizes`), and kinds of image that the rest of their class does not explain (`end_model.kinds`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpssl.end_model.kinds import SMALLEST_KIND, explained, kinds_of, least_explained
from dpssl.end_model.predict import embed
from dpssl.end_model.sizes import images_to_ask, told_apart_by_size
from dpssl.end_model.storage import END_MODEL, load_end_model
from dpssl.nets.backbones import build_backbone, start_backbone
from dpssl.nets.classifier import Classifier
from dpssl.runs import Run
from dpssl.warm_start import BACKBONE

KINDS_ASKED_A_CLASS, MOST_ASKED_FOR_KINDS = 1000, 10_000  # images
HARDLY_EXPLAINED = 0.25  # and half of the median over the kinds: features that tell little explain none
N_EXAMPLES = 6


def pairs_told_apart_by_size(run: Run, device: torch.device, memory: str) -> list[dict[str, Any]]:
    """The pairs of classes that the run's end model tells apart by how much of the image they fill."""
    model = load_end_model(run.folder, device)
    rows = images_to_ask(run.split.unlabeled, run.dataset.n_classes)
    return told_apart_by_size(model.network, model.bank.with_images(run.dataset.images[rows], memory))


def pairs_by_size(runs: Sequence[Run], device: torch.device, memory: str) -> list[list[tuple[int, int]]]:
    """For each of `runs` the pairs of classes that its end model, if it has one, tells apart by size."""
    found = [pairs_told_apart_by_size(run, device, memory) if run.folder.has(END_MODEL) else [] for run in runs]
    return [
        sorted({(min(pair["near"], pair["far"]), max(pair["near"], pair["far"])) for pair in of_run})
        for of_run in found
    ]


def knows_its_kinds(run: Run) -> bool:
    """Whether the run has an end model, and began with weights that no label has touched: learnt, or of a file here."""
    weights = run.config.backbone.backbone_weights
    began = run.folder.has(BACKBONE) or (weights != "" and Path(weights).expanduser().is_file())
    return began and run.folder.has(END_MODEL)


@dataclass(frozen=True)
class Kinds:
    """The kinds of image of a run, and how far the rest of its class explains each."""

    rows: NDArray[np.int64]  # of the unlabelled images with a vote
    labels: NDArray[np.int64]  # theirs by the run
    kinds: NDArray[np.int64]  # theirs
    explained: NDArray[np.float64]  # of each kind


def kinds_of_run(
    run: Run, features: NDArray[np.float32], device: torch.device, memory: str, asked: NDArray[np.int64] | None = None
) -> Kinds:
    """Of all images, or of the rows `asked`. What is near is looked up in `features`, theirs of `start_features`."""
    model, images = load_end_model(run.folder, device), _images(run, asked)
    file = run.folder.read_soft_labels(run.dataset.ids)
    rows = np.arange(len(file.ids)) if asked is None else asked
    judged = np.flatnonzero(file.covered[rows] & np.isin(rows, run.split.unlabeled))
    labels = file.soft_labels[rows[judged]].argmax(1)
    embeddings = embed(model.network, model.bank.with_images(images, memory)).numpy()
    kinds = kinds_of(embeddings[judged], labels)
    return Kinds(rows[judged], labels, kinds, explained(features[judged], labels, kinds, device))


def unexplained_images(run: Run, share: float, device: torch.device, memory: str) -> NDArray[np.bool_]:
    """(n,) true for images of the kinds that the rest of their class explains least, `share` of them at most."""
    found = kinds_of_run(run, start_features(run, device, memory), device, memory)
    is_unexplained = np.zeros(len(run.dataset.ids), dtype=np.bool_)
    is_unexplained[found.rows[least_explained(found.explained, found.kinds, share)]] = True
    return is_unexplained


def images_asked_for_kinds(run: Run) -> NDArray[np.int64]:
    """Rows of as many unlabelled images as a report looks at."""
    a_class = min(KINDS_ASKED_A_CLASS, max(1, MOST_ASKED_FOR_KINDS // run.dataset.n_classes))
    return images_to_ask(run.split.unlabeled, run.dataset.n_classes, a_class)


def unexplained_kinds(run: Run, device: torch.device, memory: str) -> list[dict[str, Any]]:
    """The kinds that their class hardly explains, among some images of each class, the least explained first.

    `label` is the class number, `share` that of the kind in its class, `explained` as in `end_model.kinds`, and `ids`
    are some of its images.
    """
    asked = images_asked_for_kinds(run)
    found = kinds_of_run(run, start_features(run, device, memory, asked), device, memory, asked)
    described = []
    for kind in hardly_explained(found):
        members = np.flatnonzero(found.kinds == kind)
        label = int(found.labels[members[0]])
        shown = found.rows[members[np.linspace(0, len(members) - 1, N_EXAMPLES).astype(int)]]
        described.append(
            {
                "label": label,
                "share": round(len(members) / int((found.labels == label).sum()), 4),
                "explained": round(float(found.explained[kind]), 4),
                "ids": run.dataset.ids[shown].tolist(),
            }
        )
    return described


def hardly_explained(found: Kinds) -> list[int]:
    """The kinds of some size that their class hardly explains, the least explained first."""
    if not len(found.kinds):
        return []
    limit = min(HARDLY_EXPLAINED, 0.5 * float(np.median(found.explained)))
    is_named = (found.explained < limit) & (np.bincount(found.kinds) >= SMALLEST_KIND)
    return [int(kind) for kind in np.argsort(found.explained, kind="stable") if is_named[kind]]


def start_features(
    run: Run, device: torch.device, memory: str, asked: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """(n, D) of the backbone as it was before it saw a label, of all images or the rows `asked`."""
    n_channels = run.dataset.images.shape[-1]
    backbone = build_backbone(run.config.backbone, n_channels)
    if run.folder.has(BACKBONE):
        backbone.load_state_dict(run.folder.read_safetensors(BACKBONE)[0])
    else:
        start_backbone(backbone, run.config.backbone, n_channels, torch.Generator())
    network = Classifier(backbone, run.dataset.n_classes).to(device).eval()
    bank = load_end_model(run.folder, device).bank.with_images(_images(run, asked), memory)
    return np.asarray(embed(network, bank).float().numpy())


def _images(run: Run, asked: NDArray[np.int64] | None) -> NDArray[np.uint8]:
    """All of them as they are, perhaps memory-mapped, or a copy of those asked for."""
    return run.dataset.images if asked is None else run.dataset.images[asked]

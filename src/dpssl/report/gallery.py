"""Which images a page shows of each class: the surest, the most typical and the least sure, as pictures with words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.report.contents import Labels, RunContents
from dpssl.report.names import probability, shown
from dpssl.report.thumbnails import LOSSLESS_SIDE, data_address

MOST_PICTURES = 600  # on a page: with plots and text that stays under 8 MB
PICTURES_PER_ROW = (4, 6)  # fewest and most
WORTH_NAMING = 0.001  # the probability a runner-up is shown from


@dataclass(frozen=True)
class Picture:
    """One image, the lines to write below it and what to say of it to those who cannot see it."""

    address: str
    caption: tuple[str, ...]
    alt: str
    name: str
    is_pixelated: bool  # small: to be enlarged with sharp edges


@dataclass(frozen=True)
class ClassGallery:
    name: str
    n_images: int
    rows: tuple[tuple[str, list[Picture]], ...]  # title and pictures


def class_galleries(contents: RunContents, labels: Labels) -> list[ClassGallery]:
    """A gallery per class; of many classes, those whose labels are least sure."""
    fewest, most = PICTURES_PER_ROW
    n_classes = len(contents.class_names)
    n_shown = min(n_classes, MOST_PICTURES // (3 * fewest))
    per_row = min(most, max(fewest, MOST_PICTURES // (3 * n_shown)))
    least_sure = np.argsort(np.where(labels.counts > 0, labels.mean_confidence, 2.0), kind="stable")[:n_shown]
    return [_gallery(contents, labels, int(label), per_row) for label in sorted(least_sure)]


def _gallery(contents: RunContents, labels: Labels, label: int, per_row: int) -> ClassGallery:
    members = np.flatnonzero(labels.label == label)
    surest_first = members[np.argsort(-labels.confidence[members], kind="stable")]
    chosen = {"surest": surest_first[:per_row]}
    if contents.embeddings is not None:
        chosen["most typical"] = _most_typical(contents.embeddings[labels.rows[members]], members)[:per_row]
    chosen["least sure"] = surest_first[::-1][:per_row]
    return ClassGallery(
        shown(contents.class_names[label]),
        len(members),
        tuple((title, [label_picture(contents, labels, int(at)) for at in found]) for title, found in chosen.items()),
    )


def _most_typical(features: NDArray[Any], members: NDArray[np.int64]) -> NDArray[np.int64]:
    """The members nearest to their mean in the end model's feature space first."""
    features = features.astype(np.float32)
    distance = np.square(features - features.mean(axis=0)).sum(axis=1) if len(features) else np.empty(0)
    return members[np.argsort(distance, kind="stable")]


def label_picture(contents: RunContents, labels: Labels, at: int) -> Picture:
    """The image of a label, with its likeliest class and, where that is not all but certain, the next one."""
    probabilities = labels.soft_labels[at]
    first, second = np.argsort(-probabilities, kind="stable")[:2]
    names = contents.class_names
    lines = [f"{probability(probabilities[label])} {shown(names[label])}" for label in (first, second)]
    if probabilities[second] < WORTH_NAMING:
        lines.pop()
    return picture(contents, int(labels.rows[at]), tuple(lines))


def picture(contents: RunContents, row: int, caption: tuple[str, ...]) -> Picture:
    pixels = contents.dataset.images[row]
    name = shown(str(contents.dataset.ids[row]))
    return Picture(
        data_address(pixels), caption, f"{name}: {', '.join(caption)}", name, max(pixels.shape[:2]) <= LOSSLESS_SIDE
    )


def pictures(contents: RunContents, labels: Labels, chosen: Sequence[int] | NDArray[np.int64]) -> list[Picture]:
    return [label_picture(contents, labels, int(at)) for at in chosen]

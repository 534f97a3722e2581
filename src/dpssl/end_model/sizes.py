"""Are classes told apart by how much of the image they fill? A trained end model's own answers show it, without truth.

A thing seen closer is the same thing. Where answers of one class become another as the image is enlarged, and the other
way round as it is made smaller, size is what tells the two apart. With few labels it easily is: those of one class may
mostly be seen whole and those of the other from near.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpssl.data.batches import ImageBank
from dpssl.data.geometry import zoom
from dpssl.end_model.predict import predict_probabilities

ASKED_PER_CLASS, MOST_ASKED = 300, 30_000  # images, each three times
ENLARGED, SMALLER = 0.75, 1.4  # part of each side that is shown
MANY = 0.08  # of a class, both ways
FEW_ANSWERS = 30  # of a class: their shares say nothing


def images_to_ask(candidates: NDArray[np.int64], n_classes: int, per_class: int = ASKED_PER_CLASS) -> NDArray[np.int64]:
    """Evenly spread ones of the candidates, enough for every class; of very many classes fewer each."""
    per_class = min(per_class, max(FEW_ANSWERS, MOST_ASKED // n_classes))
    n_asked = min(len(candidates), per_class * n_classes)
    return np.asarray(candidates[np.linspace(0, len(candidates) - 1, n_asked).astype(int)])


def told_apart_by_size(network: nn.Module, bank: ImageBank) -> list[dict[str, Any]]:
    """The pairs of classes that change places with the size of the images of `bank`, those that change most first.

    `near` and `far` are their numbers, `enlarged` the share of the answers `far` that become `near`, `smaller` that of
    the answers `near` that become `far`. Only what one change of size does beyond the other counts for a pair: classes
    that any change mixes up are not told apart by size.
    """
    whole = answers(network, bank)
    enlarged = becomes(whole, answers(network, bank, part=ENLARGED))
    smaller = becomes(whole, answers(network, bank, part=SMALLER))
    by_size = enlarged - smaller
    both_ways = np.minimum(by_size, -by_size.T)  # [far, near]
    pairs = [(float(both_ways[far, near]), int(far), int(near)) for far, near in np.argwhere(both_ways >= MANY)]
    return [
        {
            "near": near,
            "far": far,
            "enlarged": round(float(enlarged[far, near]), 4),
            "smaller": round(float(smaller[near, far]), 4),
        }
        for _, far, near in sorted(pairs, reverse=True)
    ]


def answers(
    network: nn.Module, bank: ImageBank, *, part: float = 1.0, down: float = 0.5, right: float = 0.5
) -> NDArray[np.bool_]:
    """(n, C): what the network answers when it is shown a part, as in dpssl.data.geometry.zoom; one is true of each."""

    def shown(images: Tensor) -> Tensor:
        return zoom(images, *(torch.full((len(images),), value, device=images.device) for value in (part, down, right)))

    probabilities = predict_probabilities(network, bank, shown if part != 1 else None).numpy()
    return np.asarray(np.arange(probabilities.shape[1]) == probabilities.argmax(1)[:, None])


def becomes(before: NDArray[np.bool_], after: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(C, C): the share of the images of each answer that have each answer after; nothing for answers of a few."""
    counts = before.sum(0)[:, None]
    return np.where(counts < FEW_ANSWERS, 0.0, before.T.astype(float) @ after / np.maximum(counts, 1))

"""Kinds of image that the rest of their class does not explain. Found from features alone, without truth.

With few labels a run may give a kind of image, as a whole, to a wrong class (horses' heads to the birds) and be sure of
it. Its own features then show the kind as a part of that class by itself. So every class is parted into kinds by the
run's features, and for each kind the nearest images of other kinds are looked up in features that no label has touched,
those of the warm start: how many of them carry its label? For heads among birds few do.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpssl.nets.pooling import unit_rows

KINDS_A_CLASS = 6
SMALLEST_KIND = 30  # images: a class of fewer than twice as many is not parted
NEIGHBOURS = 50
MOST_COMPARED = 20_000  # images, evenly spread, among which the nearest are looked for
CHUNK = 1000


def kinds_of(embeddings: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) numbers of the kinds: k-means on the directions of the embeddings (n, D), for each label by itself."""
    from sklearn.cluster import KMeans

    if not len(labels):
        return np.zeros(0, dtype=np.int64)
    directions = _directions(embeddings)
    kinds = np.zeros(len(labels), dtype=np.int64)
    n_found = 0
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        n_distinct = len(np.unique(directions[members], axis=0))
        n_kinds = max(1, min(KINDS_A_CLASS, len(members) // SMALLEST_KIND, n_distinct))
        means = KMeans(n_kinds, n_init=4, max_iter=50, random_state=0).fit(directions[members])
        kinds[members] = n_found + means.labels_
        n_found += n_kinds
    return np.asarray(np.unique(kinds, return_inverse=True)[1])


def explained(
    features: NDArray[Any], labels: NDArray[np.int64], kinds: NDArray[np.int64], device: torch.device
) -> NDArray[np.float64]:
    """(kinds,): of the NEIGHBOURS images of other kinds nearest to an image in `features` (n, D), the share that carry
    its label, on the mean over the kind.

    Where fewer carry it, of as many as there are. 1 for a kind that is a class of its own: nothing could explain it.
    """
    if not len(labels):
        return np.zeros(0)
    directions = torch.from_numpy(_directions(features)).to(device)
    label, kind = (torch.from_numpy(numbers).to(device) for numbers in (labels, kinds))
    compared = np.linspace(0, len(labels) - 1, min(len(labels), MOST_COMPARED)).astype(int)
    n_neighbours = max(1, min(NEIGHBOURS, len(compared) - int(np.bincount(kinds[compared]).max())))
    among = torch.from_numpy(compared).to(device)
    n_alike = []
    for rows in torch.arange(len(labels), device=device).split(CHUNK):
        likeness = directions[rows] @ directions[among].T
        likeness.masked_fill_(kind[rows, None] == kind[among], -2.0)  # its own kind is not asked
        nearest = among[likeness.topk(n_neighbours, dim=1).indices]
        n_alike.append((label[nearest] == label[rows, None]).sum(1))
    n_of_label = np.bincount(labels[compared], minlength=labels.max() + 1)[labels]
    n_possible = n_of_label - np.bincount(kinds[compared], minlength=kinds.max() + 1)[kinds]  # (n,) outside their kind
    share = torch.cat(n_alike).cpu().numpy() / np.clip(n_possible, 1, n_neighbours)
    return np.bincount(kinds, weights=np.where(n_possible > 0, share, 1.0)) / np.bincount(kinds)


def least_explained(share_of_kind: NDArray[Any], kinds: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """(n,) true for the images of the least explained kinds, as many whole kinds as make up `share` of all at most."""
    order = np.argsort(share_of_kind, kind="stable")
    order = order[share_of_kind[order] < 1]
    n_images = np.bincount(kinds, minlength=len(share_of_kind))[order]
    chosen = order[np.cumsum(n_images) <= share * len(kinds)]
    return np.isin(kinds, chosen)


def _directions(features: NDArray[Any]) -> NDArray[np.float32]:
    """Unit vectors from the mean."""
    centred = features.astype(np.float32) - features.mean(axis=0, dtype=np.float32)
    return np.asarray(unit_rows(torch.from_numpy(centred)).numpy())

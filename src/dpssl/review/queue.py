"""In which order images are shown: by how much a look at them tells, by class, by suspected error, by search.

Comes in: the files of a run as the report reads them, without the truth. Goes out: arrays of rows, each computed once,
so that a page of any order is a slice.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.label_model.votes import chunks
from dpssl.report.contents import RunContents

Rows = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]

MOST_CLUSTERS = 256
NEAR = 0.1  # of the spread of its cluster: images closer than that to one before them are views of the same thing
MOST_COMPARED = 2000  # members of a cluster compared for that, the most useful ones


@dataclass(frozen=True)
class Queue:
    """The orders of one run. Rows are positions into the images."""

    contents: RunContents

    @cached_property
    def labels(self) -> Rows:
        """(n,) the label in force without a correction: the given one, else the soft label's, else -1."""
        given = self.contents.split.given_labels
        soft = self.contents.soft_labels
        if soft is None:
            return given
        return np.where(given >= 0, given, np.where(soft.covered, soft.soft_labels.argmax(axis=1), -1))

    @cached_property
    def confidence(self) -> Floats:
        """(n,) the probability that the soft labels give to the label in force; 0 without one."""
        soft = self.contents.soft_labels
        if soft is None:
            return np.zeros(len(self.labels))
        chosen = soft.soft_labels[np.arange(len(self.labels)), np.maximum(self.labels, 0)]
        return np.where(self.labels >= 0, chosen, 0.0)

    @cached_property
    def useful(self) -> Rows:
        """Unlabelled images, those first whose label would tell most; views of the same thing at the end."""
        return self._useful_and_copies[0]

    @cached_property
    def n_alike(self) -> Rows:
        """(n,) how many other views of the same thing an image stands for."""
        return self._useful_and_copies[1]

    @cached_property
    def _useful_and_copies(self) -> tuple[Rows, Rows]:
        rows, doubt = self.contents.split.unlabeled, doubts(self.contents)
        n_alike = np.zeros(len(self.labels), dtype=np.int64)
        if self.contents.embeddings is None:
            return rows[np.argsort(-doubt, kind="stable")], n_alike
        spread = spread_over_clusters(self.contents.embeddings[rows].astype(np.float32), doubt)
        np.add.at(n_alike, rows[spread.stands_for[spread.stands_for >= 0]], 1)
        return rows[spread.order], n_alike

    @cached_property
    def suspects(self) -> Rows:
        """Images with a given label, those first whose label the run believes least."""
        labeled = self.contents.split.labeled
        return labeled[np.argsort(self.confidence[labeled], kind="stable")]

    @cached_property
    def _by_class(self) -> list[Rows]:
        unlabeled = self.contents.split.unlabeled
        least_sure_first = unlabeled[np.argsort(self.confidence[unlabeled], kind="stable")]
        label = self.labels[least_sure_first]
        return [least_sure_first[label == wanted] for wanted in range(len(self.contents.class_names))]

    def of_class(self, label: int) -> Rows:
        """Unlabelled images that got the class, the least sure first."""
        return self._by_class[label]

    @cached_property
    def _searched(self) -> list[str]:
        return [str(name).casefold() for name in self.contents.dataset.ids]

    def search(self, text: str) -> Rows:
        """Images whose id, or the name of whose class, holds `text`, whatever the case."""
        wanted = text.strip().casefold()
        classes = [label for label, name in enumerate(self.contents.class_names) if wanted in name.casefold()]
        named = np.fromiter((wanted in name for name in self._searched), dtype=bool, count=len(self._searched))
        return np.flatnonzero(named | np.isin(self.labels, classes))


def doubts(contents: RunContents) -> Floats:
    """(u,) of each unlabelled image: the entropy of its soft label in log C, plus the share of the votes' weight that
    speaks against the class most of them name. 1 without a vote."""
    rows = contents.split.unlabeled
    doubt: Floats = np.ones(len(rows))
    if contents.soft_labels is not None:
        soft = contents.soft_labels.soft_labels[rows].astype(np.float64)
        entropy = -(soft * np.log(np.maximum(soft, 1e-12))).sum(axis=1) / np.log(soft.shape[1])
        doubt = np.where(contents.soft_labels.covered[rows], entropy, 1.0)
    if contents.votes is not None:
        weights = vote_weights(contents, rows)
        total = weights.sum(axis=1)
        doubt = doubt + np.where(total > 0, 1 - weights.max(axis=1) / np.maximum(total, 1e-12), 0.0)
    return doubt


def vote_weights(contents: RunContents, rows: Rows) -> Floats:
    """(len(rows), C) the votes for each class, each counted by its confidence."""
    assert contents.votes is not None
    n_outcomes = 1 + len(contents.class_names)  # abstain is outcome 0
    weights = np.empty((len(rows), n_outcomes - 1), dtype=np.float32)
    for part in chunks(len(rows), max(contents.votes.votes.shape[1], n_outcomes)):
        votes, confidence = contents.votes.votes[rows[part]], contents.votes.confidence[rows[part]]
        outcomes = n_outcomes * np.arange(len(votes))[:, None] + 1 + votes  # one number for each image and outcome
        sums = np.bincount(outcomes.ravel(), confidence.ravel(), minlength=n_outcomes * len(votes))
        weights[part] = sums.reshape(-1, n_outcomes)[:, 1:]
    return weights


@dataclass(frozen=True)
class Spread:
    order: Rows  # (u,) positions, the most useful first
    stands_for: Rows  # (u,) the position of the image that is shown in its place, -1 where it is shown itself


def spread_over_clusters(features: NDArray[np.float32], doubt: Floats) -> Spread:
    """Images in the order in which they cover the doubt: features (u, D), doubt (u,) -> Spread.

    k-means weighted by doubt (Zhdanov 2019, arXiv:1901.05954) finds the kinds of images in doubt. However many are
    looked at, each cluster gets a share of them in proportion to its doubt (D'Hondt's rule): its j-th image is worth
    the doubt that is left in the cluster over j. In a cluster the doubtful and typical come first.
    """
    clusters, distance = _clusters(features, doubt)
    worth, is_copy, stands_for = np.empty(len(doubt)), np.zeros(len(doubt), bool), np.full(len(doubt), -1)
    for cluster in range(int(clusters.max()) + 1):
        members = np.flatnonzero(clusters == cluster)
        if not len(members):
            continue
        scale = max(float(distance[members].mean()), 1e-12)  # mean squared distance to the centre
        members = members[np.argsort(-doubt[members] / (1 + distance[members] / scale), kind="stable")]
        leader = _leaders(features[members], NEAR**2 * scale)
        copies = members[leader >= 0]
        is_copy[copies], stands_for[copies] = True, members[leader[leader >= 0]]
        shown = members[leader < 0]
        worth[shown] = np.cumsum(doubt[shown][::-1])[::-1] / np.arange(1, len(shown) + 1)
        worth[copies] = doubt[copies]
    return Spread(np.lexsort((-worth, is_copy)), stands_for)


def _clusters(features: NDArray[np.float32], doubt: Floats) -> tuple[Rows, Floats]:
    """Cluster of each image, and its squared distance to the centre."""
    from sklearn.cluster import MiniBatchKMeans

    n_clusters = int(min(MOST_CLUSTERS, max(1, np.sqrt(len(features))), len(np.unique(features, axis=0))))
    means = MiniBatchKMeans(n_clusters, batch_size=4096, max_iter=20, n_init=1, random_state=0)
    clusters = means.fit(features, sample_weight=doubt + 1e-6).labels_.astype(np.int64)
    return clusters, np.square(features - means.cluster_centers_[clusters]).sum(axis=1)


def _leaders(features: NDArray[np.float32], near: float) -> Rows:
    """(m,) for each of the features in order, an earlier one no further (squared) than `near`, or -1.

    Chains lead to their start, so that a group has one leader.
    """
    first = features[:MOST_COMPARED]
    squares = np.square(first).sum(axis=1)
    distances = squares[:, None] + squares - 2 * first @ first.T  # (m, m)
    close = np.tril(distances <= near, -1)
    leader = np.full(len(features), -1)
    for at in np.flatnonzero(close.any(axis=1)):
        earlier = int(close[at].argmax())
        leader[at] = leader[earlier] if leader[earlier] >= 0 else earlier
    return leader

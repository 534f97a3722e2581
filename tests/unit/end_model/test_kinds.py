"""A kind of image that its class does not explain is found by features alone, whatever the run is sure of."""

import numpy as np
import pytest
import torch

from dpssl.end_model import kinds
from dpssl.end_model.kinds import explained, kinds_of, least_explained

CPU = torch.device("cpu")


def around(centres: np.ndarray, n_each: int, seed: int = 0) -> np.ndarray:
    spread = np.random.default_rng(seed).normal(size=(len(centres) * n_each, centres.shape[1]))
    return np.repeat(centres, n_each, axis=0) + 0.15 * spread


@pytest.fixture
def mistaken() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and kinds. Of four kinds two are class 0, two class 1, but the last looks like class 0."""
    kind = np.repeat(np.arange(4), 200)
    start = around(np.array([[3.0, 0, 0], [3.0, 1.5, 0], [-4.0, 0, 0], [3.0, 0.7, 1.5]]), 200)
    return start, np.array([0, 0, 1, 1])[kind], kind


def test_the_kind_on_the_wrong_side_is_explained_least(mistaken: tuple[np.ndarray, ...]) -> None:
    start, labels, kind = mistaken
    share = explained(start, labels, kind, CPU)
    assert share.argmin() == 3
    assert share[3] < 0.1
    assert (share[:2] > 0.4).all(), "each other's neighbours"
    chosen = least_explained(share, kind, 0.25)
    assert (chosen == (kind == 3)).all()


def test_its_own_kind_is_not_asked(mistaken: tuple[np.ndarray, ...]) -> None:
    start, labels, kind = mistaken
    in_pairs = explained(start, labels, np.repeat(np.arange(400), 2), CPU)
    assert in_pairs[300:].mean() > 0.9, "were each pair a kind, the others like it would explain it"
    assert explained(start, labels, kind, CPU)[3] < 0.1


def test_whole_kinds_as_many_as_fit() -> None:
    kind = np.repeat(np.arange(4), [10, 20, 30, 40])
    share = np.array([0.5, 0.1, 0.2, 0.9])
    assert set(kind[least_explained(share, kind, 0.2)]) == {1}
    assert set(kind[least_explained(share, kind, 0.5)]) == {1, 2}
    assert not least_explained(share, kind, 0.1).any()
    assert not least_explained(share, kind, 0.0).any()


def test_a_class_of_one_kind_is_not_judged() -> None:
    labels = np.repeat([0, 1, 1], 60)
    kind = np.repeat([0, 1, 2], 60)
    start = around(np.array([[5.0, 0], [0, 5.0], [0.5, 5.0]]), 60)
    share = explained(start, labels, kind, CPU)
    assert share[0] == 1
    assert not least_explained(share, kind, 0.9)[labels == 0].any()


def test_every_class_is_parted_by_the_features_of_the_run() -> None:
    embeddings = around(np.eye(12) * 4, 100)
    labels = np.repeat([0, 1], 600)
    found = kinds_of(embeddings, labels)
    assert len(np.unique(found)) == 2 * kinds.KINDS_A_CLASS
    for kind in np.unique(found):
        assert len(np.unique(labels[found == kind])) == 1
    assert all(len(np.unique(found[start : start + 100])) == 1 for start in range(0, 1200, 100))
    few = kinds_of(embeddings[560:660], labels[560:660])
    assert len(np.unique(few)) == 40 // kinds.SMALLEST_KIND + 60 // kinds.SMALLEST_KIND


def test_more_images_than_are_compared(mistaken: tuple[np.ndarray, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    start, labels, kind = mistaken
    monkeypatch.setattr(kinds, "MOST_COMPARED", 300)
    share = explained(start, labels, kind, CPU)
    assert share.argmin() == 3
    assert share[3] < 0.1


def test_a_rare_class_and_a_large_kind_are_as_explained_as_others() -> None:
    labels = np.repeat([0, 1, 2], [600, 600, 65])
    start = np.concatenate([around(8 * np.eye(3)[[c]], n, seed=c) for c, n in enumerate((600, 600, 65))])
    kind = np.concatenate([np.repeat([0, 1], [590, 10]), np.repeat([2, 3], 300), np.repeat([4, 5], [32, 33])])
    assert explained(start, labels, kind, CPU) == pytest.approx(np.ones(6))


def test_images_that_are_all_alike_are_one_kind() -> None:
    embeddings = np.concatenate([np.ones((200, 4)), around(np.eye(4) * 4, 60)])
    labels = np.repeat([0, 1], [200, 240])
    found = kinds_of(embeddings, labels)
    assert len(np.unique(found[:200])) == 1
    assert explained(embeddings, labels, found, CPU)[found[0]] == 1


def test_no_images_no_kinds() -> None:
    nothing = np.zeros((0, 3)), np.zeros(0, np.int64)
    found = kinds_of(*nothing)
    assert not least_explained(explained(*nothing, found, CPU), found, 0.5).any()

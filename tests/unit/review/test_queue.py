"""Which images are shown first, and that none is lost."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from dpssl.label_model import votes as vote_files
from dpssl.review.queue import Queue, doubts, spread_over_clusters, vote_weights
from dpssl.step_files import SoftLabelFile, VoteFile


def test_doubt_is_entropy_and_conflict(make_run: Any) -> None:
    made = make_run(n=16, n_lfs=3, class_names=("a", "b"))
    contents = made.contents()
    n = len(contents.dataset.ids)
    soft, votes, confidence = np.tile([1.0, 0.0], (n, 1)), np.zeros((n, 3), int), np.ones((n, 3))
    soft[10], soft[11] = (0.5, 0.5), (0.9, 0.1)
    votes[12, 0] = 1  # one of three speaks against
    votes[13] = -1
    covered = np.arange(n) != 13
    ids, names = contents.dataset.ids, contents.class_names
    contents = made.contents(
        soft_labels=SoftLabelFile(ids, names, soft.astype(np.float32), covered),
        votes=VoteFile(votes, confidence, np.ones((3, 2), bool), ids, names),
    )
    doubt = dict(zip(contents.split.unlabeled.tolist(), doubts(contents), strict=True))
    assert doubt[9] == 0
    assert np.isclose(doubt[10], 1)
    assert np.isclose(doubt[11], -(0.9 * np.log2(0.9) + 0.1 * np.log2(0.1)))
    assert np.isclose(doubt[12], 1 / 3)
    assert doubt[13] == 1


@pytest.mark.parametrize("votes_at_a_time", [1, 50, 10**6])
def test_votes_count_by_their_confidence(make_run: Any, monkeypatch: pytest.MonkeyPatch, votes_at_a_time: int) -> None:
    monkeypatch.setattr(vote_files, "CHUNK_VOTES", votes_at_a_time)
    made = make_run(class_names=tuple("abcde"))
    votes = made.contents().votes
    confidence = np.random.default_rng(0).uniform(0.01, 1, votes.votes.shape)
    contents = made.contents(votes=dataclasses.replace(votes, confidence=confidence))
    rows = contents.split.unlabeled[::-1]
    expected = np.zeros((len(rows), 5))
    for at, row in enumerate(rows):
        for vote, sure in zip(contents.votes.votes[row], contents.votes.confidence[row], strict=True):
            if vote >= 0:
                expected[at, vote] += sure
    weights = vote_weights(contents, rows)
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(weights, expected.astype(np.float32))
    assert vote_weights(contents, rows[:0]).shape == (0, 5)


def test_every_unlabelled_image_is_in_the_order_once(make_run: Any) -> None:
    for files in (("votes", "labels", "embeddings"), ("labels",)):
        contents = make_run(files=files).contents()
        assert sorted(Queue(contents).useful.tolist()) == contents.split.unlabeled.tolist()


def test_without_features_the_doubtful_come_first(make_run: Any) -> None:
    contents = make_run(files=("votes", "labels")).contents()
    doubt = dict(zip(contents.split.unlabeled.tolist(), doubts(contents), strict=True))
    ordered = [doubt[row] for row in Queue(contents).useful.tolist()]
    assert ordered == sorted(ordered, reverse=True)


def test_kinds_of_images_take_turns_by_their_doubt() -> None:
    draws = np.random.default_rng(0)
    kinds = np.repeat(np.arange(4), 25)
    features = (100 * np.eye(4)[kinds] + draws.normal(0, 1, (100, 4))).astype(np.float32)
    doubt = np.where(kinds == 0, 0.4, 0.2) + draws.uniform(0, 0.01, 100)
    first = kinds[spread_over_clusters(features, doubt).order[:40]]
    counts = np.bincount(first, minlength=4)
    assert (counts >= 5).all(), "no kind is left out"
    assert counts[0] == counts.max(), "the kind with most doubt is asked most"
    certain = np.where(kinds == 3, 0.0, doubt)
    assert (kinds[spread_over_clusters(features, certain).order[:40]] != 3).all()


def test_views_of_the_same_thing_are_shown_once() -> None:
    draws = np.random.default_rng(1)
    features = draws.normal(0, 1, (60, 5)).astype(np.float32)
    features[40:50] = features[:10] + 1e-4  # ten near-copies
    spread = spread_over_clusters(features, draws.uniform(0.5, 1, 60))
    pairs = {frozenset((at, int(other))) for at, other in enumerate(spread.stands_for) if other >= 0}
    assert pairs == {frozenset((at, at + 40)) for at in range(10)}
    assert {int(at) for at in spread.order[-10:]} == set(np.flatnonzero(spread.stands_for >= 0).tolist())


def test_many_equal_images_do_no_harm() -> None:
    spread = spread_over_clusters(np.zeros((50, 3), np.float32), np.ones(50))
    assert sorted(spread.order.tolist()) == list(range(50))
    assert (spread.stands_for >= 0).sum() == 49


def test_given_labels_that_are_believed_least_come_first(make_run: Any) -> None:
    contents = make_run().contents()
    queue = Queue(contents)
    assert sorted(queue.suspects.tolist()) == contents.split.labeled.tolist()
    believed = queue.confidence[queue.suspects]
    assert (np.diff(believed) >= 0).all()


def test_a_class_has_its_images_least_sure_first(make_run: Any) -> None:
    contents = make_run().contents()
    queue = Queue(contents)
    found = [queue.of_class(label) for label in range(3)]
    labels = contents.labels
    assert sorted(np.concatenate(found).tolist()) == labels.rows.tolist()
    for label, rows in enumerate(found):
        assert (queue.labels[rows] == label).all()
        assert (np.diff(queue.confidence[rows]) >= 0).all()


def test_search_finds_ids_and_classes(make_run: Any) -> None:
    contents = make_run().contents()
    queue = Queue(contents)
    assert queue.search(" IMAGE-77 ").tolist() == [77]
    owls = queue.search("Owl")
    assert (queue.labels[owls] == 2).all()
    assert len(owls) == (queue.labels == 2).sum()
    assert len(queue.search("no such thing")) == 0
    assert len(queue.search("")) == len(contents.dataset.ids)

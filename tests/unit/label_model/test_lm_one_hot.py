"""The sparse form of votes and its two products; identical rows counted once."""

import numpy as np
import pytest

from dpssl.label_model import votes as votes_module
from dpssl.label_model.one_hot import OneHotVotes, distinct_rows
from dpssl.label_model.votes import chunks


@pytest.fixture
def votes():
    return np.random.default_rng(0).integers(-1, 3, size=(40, 5)).astype(np.int8)


@pytest.fixture(params=["scipy", "numpy"])
def sparse(request, votes, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(OneHotVotes, "_build_csr", lambda self: None)
    return OneHotVotes(votes, 3)


def test_sum_rows_equals_the_loop(sparse, votes):
    table = np.random.default_rng(1).normal(size=(15, 4))
    sums = sparse.sum_rows(table)
    for row in range(40):
        expected = sum((table[k * 3 + v] for k, v in enumerate(votes[row]) if v >= 0), np.zeros(4))
        np.testing.assert_allclose(sums[row], expected)


def test_sum_columns_equals_the_loop(sparse, votes):
    weights = np.random.default_rng(2).normal(size=(40, 2))
    sums = sparse.sum_columns(weights)
    for k, v in np.ndindex(5, 3):
        np.testing.assert_allclose(sums[k * 3 + v], weights[votes[:, k] == v].sum(0), atol=1e-12)


def test_rows_without_votes(monkeypatch):
    for build in (OneHotVotes._build_csr, lambda self: None):
        monkeypatch.setattr(OneHotVotes, "_build_csr", build)
        empty = OneHotVotes(np.full((3, 2), -1, dtype=np.int8), 2)
        assert not empty.sum_rows(np.ones((4, 2))).any()
        assert not empty.sum_columns(np.ones((3, 2))).any()


def test_many_classes_do_not_overflow_the_votes_type():
    votes = np.full((1, 50), 99, dtype=np.int8)
    assert OneHotVotes(votes, 100).columns[-1] == 49 * 100 + 99


def test_chunks_cover_every_row_once(monkeypatch):
    monkeypatch.setattr(votes_module, "CHUNK_VOTES", 30)
    covered = np.concatenate([np.arange(100)[rows] for rows in chunks(100, 4)])
    assert covered.tolist() == list(range(100))
    assert [rows.stop - rows.start for rows in chunks(3, 1000)] == [1, 1, 1]


def test_distinct_rows(votes):
    repeated = np.vstack([votes, votes[:7]])
    distinct = distinct_rows(repeated)
    np.testing.assert_array_equal(repeated[distinct.first][distinct.inverse], repeated)
    assert len(distinct.first) == len(np.unique(repeated, axis=0))


def test_equal_votes_with_different_labels_are_different_rows():
    votes = np.zeros((3, 2), dtype=np.int8)
    assert len(distinct_rows(votes, np.array([0, 0, 1])).first) == 2


def test_a_hash_collision_merges_nothing(monkeypatch):
    class SameNumbers:
        def integers(self, *args, size, **kwargs):
            return np.ones(size, dtype=np.uint64)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: SameNumbers())
    votes = np.array([[0, 1], [1, 0]], dtype=np.int8)  # equal hashes when all multipliers are equal
    assert distinct_rows(votes).first.tolist() == [0, 1]

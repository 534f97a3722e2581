"""Weighted rows that stand for all of them."""

import numpy as np
import pytest

from dpssl.label_model import votes as votes_module
from dpssl.label_model.row_sample import sample_rows


@pytest.fixture
def votes():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=20_000)
    return np.where(rng.random((20_000, 8)) < 0.7, y[:, None], rng.integers(-1, 3, size=(20_000, 8))).astype(np.int8)


def test_few_rows_are_all_kept_and_counted_once(votes):
    rows = sample_rows(votes[:300], 3, None, None, 10_000)
    distinct, count = np.unique(votes[:300], axis=0, return_counts=True)
    order = np.lexsort(rows.outcomes.T[::-1])
    np.testing.assert_array_equal(rows.outcomes[order], distinct)
    np.testing.assert_array_equal(rows.weight[order], count)


def test_a_sample_is_small_and_unbiased(votes):
    distinct = len(np.unique(votes, axis=0))
    rows = sample_rows(votes, 3, None, None, 1500)
    assert len(rows.weight) < 1700 < distinct
    assert rows.weight.sum() == pytest.approx(len(votes), rel=0.05)
    share = np.array([[rows.weight[rows.outcomes[:, k] == c].sum() for c in range(3)] for k in range(8)])
    truth = np.array([[(votes[:, k] == c).sum() for c in range(3)] for k in range(8)])
    np.testing.assert_allclose(share, truth, rtol=0.1)


def test_frequent_rows_are_always_kept(votes):
    rows = sample_rows(votes, 3, None, None, 500)
    distinct, count = np.unique(votes, axis=0, return_counts=True)
    kept = {row.tobytes() for row in rows.outcomes}
    assert all(row.tobytes() in kept for row in distinct[np.argsort(-count)[:20]])


def test_labelled_rows_are_always_kept(votes):
    y = np.full(len(votes), -1)
    y[::400] = 1
    rows = sample_rows(votes, 3, y, None, 200)
    assert rows.weight[rows.y == 1].sum() == (y == 1).sum()


def test_order_does_not_choose(votes):
    rng = np.random.default_rng(1)
    lfs = rng.permutation(8)
    first = sample_rows(votes, 3, None, None, 700)
    second = sample_rows(votes[rng.permutation(len(votes))][:, lfs], 3, None, None, 700)
    one = {row.tobytes(): w for row, w in zip(np.ascontiguousarray(first.outcomes[:, lfs]), first.weight, strict=True)}
    two = {row.tobytes(): w for row, w in zip(second.outcomes, second.weight, strict=True)}
    assert one.keys() == two.keys()
    assert all(one[key] == pytest.approx(two[key]) for key in one)


def test_chunks_of_a_memory_map_give_the_same_rows(votes, tmp_path, monkeypatch):
    whole = sample_rows(votes, 3, None, None, 700)
    np.save(tmp_path / "votes.npy", votes)
    monkeypatch.setattr(votes_module, "CHUNK_VOTES", 8 * 999)
    mapped = sample_rows(np.load(tmp_path / "votes.npy", mmap_mode="r"), 3, None, None, 700)
    assert mapped.weight.sum() == pytest.approx(whole.weight.sum())
    assert {row.tobytes() for row in mapped.outcomes} == {row.tobytes() for row in whole.outcomes}


def test_a_weight_is_that_many_rows(votes):
    distinct, count = np.unique(votes, axis=0, return_counts=True)
    repeated = sample_rows(votes, 3, None, None, 700)
    weighted = sample_rows(distinct, 3, None, count.astype(np.float64), 700)
    order = [np.lexsort(rows.outcomes.T) for rows in (repeated, weighted)]
    np.testing.assert_array_equal(repeated.outcomes[order[0]], weighted.outcomes[order[1]])
    np.testing.assert_allclose(repeated.weight[order[0]], weighted.weight[order[1]])


def test_the_order_of_fractions_does_not_choose(votes):
    weight = np.random.default_rng(2).integers(1, 10, len(votes)) / 10
    first, second = (sample_rows(votes[::by], 3, None, weight[::by], 700) for by in (1, -1))
    assert {row.tobytes() for row in first.outcomes} == {row.tobytes() for row in second.outcomes}


def test_rows_without_weight_are_left_out(votes):
    weight = np.zeros(len(votes))
    weight[:10] = 2.0
    assert sample_rows(votes, 3, None, weight, 1000).weight.sum() == 20.0

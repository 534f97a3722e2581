"""Votes that come in parts: several partial fits, or several workers' tallies, equal one fit on all rows."""

import numpy as np
import pytest

from dpssl import LabelModel
from dpssl.errors import InputError
from dpssl.label_model import VARIANTS, tally_votes

USES_CONFIDENCE = [name for name, variant in VARIANTS.items() if variant.uses_confidence]


def halves(n_rows):
    return slice(0, n_rows // 3), slice(n_rows // 3, n_rows)


def assert_same_model(one, other, votes, confidence=None):
    expected = other.predict_proba(votes, confidence)
    np.testing.assert_allclose(one.predict_proba(votes, confidence), expected, atol=1e-6)
    np.testing.assert_allclose(one.class_balance_, other.class_balance_, atol=1e-6)
    assert str(one.lf_summary()) == str(other.lf_summary())


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_parts_equal_the_whole(variant, world):
    y = np.where(np.arange(len(world.y)) % 50 == 0, world.y, -1)
    weight = 1.0 + np.arange(len(y)) % 3
    whole = LabelModel(4, variant).fit(world.votes, y, sample_weight=weight)
    parts = LabelModel(4, variant)
    for rows in halves(len(y)):
        parts.partial_fit(world.votes[rows], y[rows], sample_weight=weight[rows])
    assert_same_model(parts, whole, world.votes)


@pytest.mark.parametrize("variant", USES_CONFIDENCE)
def test_confidences_come_in_parts_too(variant, world):
    confidence = np.random.default_rng(0).uniform(0.3, 1.0, world.votes.shape)
    whole = LabelModel(4, variant).fit(world.votes, confidence=confidence)
    parts = LabelModel(4, variant)
    for rows in halves(len(world.votes)):
        parts.partial_fit(world.votes[rows], confidence=confidence[rows])
    assert_same_model(parts, whole, world.votes, confidence)


@pytest.mark.parametrize("variant", VARIANTS)
def test_workers_add_up_their_tallies(variant, world):
    shards = np.array_split(world.votes, 4)
    first, *others = (tally_votes(shard, 4) for shard in shards)
    total = sum(others, start=first)
    assert total.sample_weight.sum() == len(world.votes)
    assert len(np.unique(world.votes, axis=0)) <= len(total.votes) < len(world.votes)
    merged = LabelModel(4, variant).fit(total.votes, total.y, sample_weight=total.sample_weight)
    assert_same_model(merged, LabelModel(4, variant).fit(world.votes), world.votes)


def test_more_distinct_rows_than_the_default_model_needs(specialist_votes):
    """Beyond some 16,000 distinct rows the default model samples them; parts must not change which."""
    world = specialist_votes(n_rows=30_000, n_lfs=20, n_classes=3)
    parts = LabelModel(3)
    for rows in halves(30_000):
        parts.partial_fit(world.votes[rows])
    assert len(parts.tally_.votes) > 20_000
    assert_same_model(parts, LabelModel(3).fit(world.votes), world.votes)


@pytest.mark.filterwarnings("ignore:no labeling function votes for class")
def test_a_later_part_may_bring_new_classes_and_labeling_functions(world):
    votes = world.votes.copy()
    votes[:500, 0] = -1
    votes[:500][votes[:500] == 3] = -1
    with pytest.warns(UserWarning, match="never vote"):
        parts = LabelModel(4).partial_fit(votes[:500])
    assert_same_model(parts.partial_fit(votes[500:]), LabelModel(4).fit(votes), votes)


def test_a_file_is_a_part(world, tmp_path):
    np.savez(tmp_path / "votes.npz", votes=world.votes[1000:])
    parts = LabelModel(4).partial_fit(world.votes[:1000]).partial_fit(tmp_path / "votes.npz")
    assert_same_model(parts, LabelModel(4).fit(world.votes), world.votes)


def test_the_caller_may_reuse_its_arrays(world):
    parts, votes, weight = LabelModel(4), np.empty((200, 12), dtype=np.int8), np.ones(200)
    for start in range(0, 2000, 200):
        votes[:] = world.votes[start : start + 200]
        weight[:] = 1 + start // 1000
        parts.partial_fit(votes, sample_weight=weight)
    whole = LabelModel(4).fit(world.votes, sample_weight=np.repeat([1.0, 2.0], 1000))
    assert_same_model(parts, whole, world.votes)


def test_only_partial_fits_can_be_continued(world, tmp_path):
    model = LabelModel(4).partial_fit(world.votes)
    model.save(tmp_path / "model.safetensors")
    for closed in (LabelModel.load(tmp_path / "model.safetensors"), LabelModel(4).fit(world.votes)):
        with pytest.raises(InputError, match="partial_fit goes on from partial_fit only"):
            closed.partial_fit(world.votes)


def test_parts_that_do_not_fit_together(world):
    model = LabelModel(4).partial_fit(world.votes)
    with pytest.raises(InputError, match="votes have 11 columns, but those before had 12"):
        model.partial_fit(world.votes[:, :11])
    with pytest.raises(InputError, match="confidence is given for some parts"):
        model.partial_fit(world.votes, confidence=np.ones(world.votes.shape))
    with pytest.raises(InputError, match="row 0 has the vote 9"):
        model.partial_fit(np.full((1, 12), 9))
    assert model.tally_.sample_weight.sum() == len(world.votes), "a refused part leaves no trace"

"""The default model at 1,000 classes and LFs: one accuracy per LF and class where whole tables would not fit."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse

from dpssl import LabelModel
from dpssl.label_model.checks import check_vote_data
from dpssl.label_model.weighted_vote import WeightedVoteFit, fit_weighted_vote


@pytest.fixture(scope="module")
def crowded():
    """3,000 rows with 5 votes each by 1,000 LFs for any of 1,000 classes; the first 100 LFs are much better."""
    n_rows, n_lfs, n_classes, per_row = 3000, 1000, 1000, 5
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n_rows)
    lf = np.concatenate([rng.choice(n_lfs, per_row, replace=False) for _ in range(n_rows)])
    row = np.repeat(np.arange(n_rows), per_row)
    right = rng.random(len(row)) < np.where(lf < 100, 0.95, 0.5)
    vote = np.where(right, y[row], rng.integers(0, n_classes, len(row)))
    return scipy.sparse.csr_array((vote, (row, lf)), shape=(n_rows, n_lfs)), y


def test_a_thousand_classes_and_labeling_functions(crowded, tmp_path):
    votes, y = crowded
    with pytest.warns(UserWarning, match="one accuracy per labeling function and class is learnt instead"):
        model = LabelModel(1000).fit(votes)
    assert isinstance(model.fitted_, WeightedVoteFit)
    proba = model.predict_proba(votes)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    assert model.score(votes, y) > LabelModel(1000, "majority").fit(votes).score(votes, y)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(LabelModel.load(tmp_path / "model.safetensors").predict_proba(votes), proba)


def test_better_labeling_functions_weigh_more(crowded):
    votes, _ = crowded
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weight = LabelModel(1000).fit(votes).fitted_.vote_weight
    mean = [weight[lfs][weight[lfs] != 0].mean() for lfs in (slice(0, 100), slice(100, None))]
    assert mean[0] > mean[1] + 0.3


def test_the_order_of_rows_and_labeling_functions_does_not_matter(world):
    rng = np.random.default_rng(1)
    rows, lfs = rng.permutation(len(world.votes)), rng.permutation(world.votes.shape[1])
    y = np.where(np.arange(len(rows)) < 100, world.y, -1)
    one = fit_weighted_vote(check_vote_data(world.votes, 4, y))
    other = fit_weighted_vote(check_vote_data(world.votes[rows][:, lfs], 4, y[rows]))
    np.testing.assert_allclose(other.vote_weight, one.vote_weight[lfs], atol=1e-9)
    np.testing.assert_allclose(other.class_balance, one.class_balance, atol=1e-9)


def test_prediction_is_the_formula():
    rng = np.random.default_rng(0)
    balance, accuracy = np.array([0.5, 0.3, 0.2]), rng.uniform(0.5, 0.9, (2, 3))
    weight = np.log(accuracy / (1 - accuracy)) - np.log(balance / (1 - balance))
    votes = np.array(list(itertools.product((-1, 0, 1, 2), repeat=2)), dtype=np.int8)
    found = WeightedVoteFit(balance, weight, True, 1).predict_log_proba(votes)
    for row, log_proba in zip(votes, found, strict=True):
        joint = balance.copy()
        for k, v in enumerate(row):
            if v >= 0:  # P(y | k says v) / π_y, which is what a vote adds
                given_vote = (1 - accuracy[k, v]) * balance / (1 - balance[v])
                given_vote[v] = accuracy[k, v]
                joint *= given_vote / balance
        np.testing.assert_allclose(np.exp(log_proba), joint / joint.sum())


def test_labels_and_weights_count(world):
    """A labelled row teaches its label, and a row of weight 2 is two rows."""
    votes, y = world.votes[:300], world.y[:300]
    labeled = fit_weighted_vote(check_vote_data(votes, 4, y))
    spoken = votes != -1
    share = np.array([(votes[spoken[:, k], k] == y[spoken[:, k]]).mean() for k in range(votes.shape[1])])
    best, worst = share.argmax(), share.argmin()
    assert labeled.vote_weight[best][labeled.vote_weight[best] != 0].max() > labeled.vote_weight[worst].max()
    twice = fit_weighted_vote(check_vote_data(np.concatenate([votes, votes]), 4))
    weighted = fit_weighted_vote(check_vote_data(votes, 4, sample_weight=np.full(300, 2.0)))
    np.testing.assert_allclose(weighted.vote_weight, twice.vote_weight, atol=1e-9)


def test_given_class_shares_are_kept(world):
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    model = fit_weighted_vote(check_vote_data(world.votes, 4, class_balance=shares))
    np.testing.assert_allclose(model.class_balance, shares)

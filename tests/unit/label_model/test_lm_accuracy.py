"""Accuracy estimation: where triplets fail, the estimator that allows for class-dependent abstention does not."""

import numpy as np
import pytest

from dpssl.label_model.accuracy import (
    accuracy_error,
    em_accuracy,
    estimate_accuracy,
    triplet_accuracy,
    true_accuracy,
)
from dpssl.label_model.checks import check_vote_data


@pytest.mark.parametrize("seed", range(3))
def test_em_is_right_under_class_dependent_abstention_and_triplets_are_not(specialist_votes, seed):
    world = specialist_votes(n_rows=10_000, seed=seed)
    truth = true_accuracy(world.votes, world.y, 4)
    data = check_vote_data(world.votes, 4, specialties=world.specialties)
    em = em_accuracy(data)
    triplet = triplet_accuracy(world.votes, 4)
    in_specialties = world.specialties
    em_error = accuracy_error(em.accuracy, truth.accuracy, in_specialties)
    triplet_error = accuracy_error(triplet.accuracy, truth.accuracy, in_specialties)
    assert em_error.mean_absolute < 0.02
    assert em_error.correlation > 0.97
    assert triplet_error.mean_absolute > 3 * em_error.mean_absolute
    assert accuracy_error(em.class_accuracy, truth.class_accuracy, in_specialties).mean_absolute < 0.03


def test_em_with_the_truth_given_counts():
    """All rows labelled: the estimate is the count, up to the smoothing."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=3000)
    votes = np.where(rng.random((3000, 4)) < 0.6, y[:, None], rng.integers(-1, 3, (3000, 4)))
    estimate = em_accuracy(check_vote_data(votes, 3, y=y))
    truth = true_accuracy(votes, y, 3)
    np.testing.assert_allclose(estimate.accuracy, truth.accuracy, atol=0.005)
    np.testing.assert_allclose(estimate.class_accuracy, truth.class_accuracy, atol=0.005)


def test_estimators_by_name(world):
    data = check_vote_data(world.votes, 4, specialties=world.specialties)
    np.testing.assert_array_equal(estimate_accuracy("em", data).accuracy, em_accuracy(data).accuracy)
    for average in ("mean", "median"):
        np.testing.assert_array_equal(
            estimate_accuracy(f"triplet-{average}", data).accuracy, triplet_accuracy(world.votes, 4, average).accuracy
        )


def test_accuracy_error_by_hand():
    error = accuracy_error(np.array([[0.5, 0.9, np.nan]]), np.array([[0.6, 0.7, 0.8]]))
    assert error.mean_absolute == pytest.approx(0.15)
    assert error.root_mean_square == pytest.approx(np.sqrt(0.025))
    assert error.correlation == pytest.approx(1.0)
    assert error.n_pairs == 2


def test_accuracy_error_of_nothing():
    error = accuracy_error(np.array([[np.nan]]), np.array([[0.5]]))
    assert error.n_pairs == 0
    assert np.isnan(error.mean_absolute)


def test_a_dead_lf_has_no_accuracy():
    votes = np.column_stack([np.tile([0, 1, 1], (2, 1)).T, np.full(3, -1)])
    data = check_vote_data(votes, 2)
    assert np.isnan(em_accuracy(data).accuracy[2]).all()
    assert np.isnan(true_accuracy(votes, np.array([0, 1, 1]), 2).accuracy[2]).all()

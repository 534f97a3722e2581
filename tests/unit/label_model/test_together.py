"""What several sources say together, and which of it is surest."""

import numpy as np
import pytest

from dpssl.label_model.together import FLOOR, common_labels, surest


def test_independent_runs_multiply() -> None:
    soft_labels = np.array([[[0.6, 0.4]], [[0.3, 0.7]]])
    found = common_labels(soft_labels, np.array([0.5, 0.5]))
    assert found == pytest.approx(np.array([[0.18, 0.28]]) / 0.46)


def test_the_prior_counts_once() -> None:
    prior = np.array([0.9, 0.1])
    soft_labels = np.array([[prior, [0.5, 0.5]], [prior, prior], [prior, prior]])
    found = common_labels(soft_labels, prior)
    assert found[0] == pytest.approx(prior), "three runs that know nothing know nothing together"
    assert found[1] == pytest.approx([0.5, 0.5]), "a run without a vote leaves the others' word"


def test_a_run_that_is_certain_can_be_outvoted() -> None:
    certain = [1.0, 0.0]
    doubting = [1e-9, 1 - 1e-9]
    found = common_labels(np.array([[certain], [doubting], [doubting]]), np.array([0.5, 0.5]))
    assert np.isfinite(found).all()
    assert found.argmax() == 1


def test_the_surest_by_the_odds_of_the_first_class_over_the_second() -> None:
    proba = np.array([[0.5, 0.49, 0.01], [0.4, 0.3, 0.3], [0.9, 0.05, 0.05], [0.35, 0.33, 0.32]])
    assert surest(proba, 2).tolist() == [1, 2]
    assert surest(proba, 4).tolist() == [0, 1, 2, 3]
    assert surest(proba, 0).tolist() == []


def test_a_class_that_is_never_sure_keeps_its_share() -> None:
    rng = np.random.default_rng(0)
    sure = 0.9 + 0.09 * rng.random(60)
    unsure = 0.5 + 0.1 * rng.random(40)
    proba = np.concatenate([np.stack([sure, 1 - sure], 1), np.stack([1 - unsure, unsure], 1)])
    chosen = surest(proba, 50)
    assert len(chosen) == 50
    hard = chosen[chosen >= 60]
    assert len(hard) == FLOOR * 0.5 * 40, "half of what an even share would be"
    assert proba[hard, 1].min() >= np.sort(unsure)[-len(hard)], "and the surest of them"


def test_as_many_as_wanted_whatever_the_classes() -> None:
    rng = np.random.default_rng(1)
    soft_labels = rng.dirichlet(np.ones(7), 201)
    for n_wanted in (1, 10, 100, 201):
        assert len(surest(soft_labels, n_wanted)) == n_wanted


def test_certainty_is_an_odds_like_any_other() -> None:
    soft_labels = np.array([[1.0, 0.0], [0.6, 0.4], [0.0, 1.0]])
    assert surest(soft_labels, 2).tolist() == [0, 2]

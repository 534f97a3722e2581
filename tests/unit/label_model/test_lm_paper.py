"""Fitting the paper's model: it finds the parameters that made the votes, and its switches do what they say."""

import numpy as np
import pytest
import torch

from dpssl.errors import InputError
from dpssl.label_model.accuracy import true_accuracy
from dpssl.label_model.checks import check_vote_data
from dpssl.label_model.objective import ObjectiveData, label_model_objective
from dpssl.label_model.paper import PaperSettings, fit_paper
from dpssl.label_model.potentials import implied_log_prior, make_potential, model_accuracy

NO_R = PaperSettings(regularizer="none")


@pytest.fixture
def data(world):
    return check_vote_data(world.votes, world.n_classes, specialties=world.specialties)


def draw_from_the_model(theta, tau, n_rows, seed=0):
    """Votes and classes drawn from Eq. 8 itself."""
    rng = np.random.default_rng(seed)
    potential = make_potential("four-part", torch.from_numpy(theta), torch.from_numpy(tau))
    y = rng.choice(tau.shape[1], size=n_rows, p=implied_log_prior(potential).exp().numpy())
    votes = np.full((n_rows, len(tau)), -1)
    table = potential.table().exp().numpy()
    for k in range(len(tau)):
        weights = np.concatenate([table[k] * tau[k], np.ones((tau.shape[1], 1))], axis=1)  # (C, C + 1), last: abstain
        cumulative = (weights / weights.sum(1, keepdims=True)).cumsum(1)[y]
        drawn = (rng.random(n_rows)[:, None] > cumulative).sum(1)
        votes[:, k] = np.where(drawn == tau.shape[1], -1, drawn)
    return votes, y


def test_recovers_theta_from_votes_of_the_model_itself():
    rng = np.random.default_rng(1)
    tau = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]], dtype=bool)
    theta = np.where(tau, rng.normal(1.5, 0.3, tau.shape), rng.normal(-2.5, 0.3, tau.shape))
    votes, _ = draw_from_the_model(theta, tau, 40_000)
    fit = fit_paper(check_vote_data(votes, 3, specialties=tau), NO_R)
    assert np.abs(fit.theta - theta).max() < 0.35
    assert np.abs(fit.theta - theta).mean() < 0.06


def test_the_minimum_is_a_minimum(data):
    fit = fit_paper(data, PaperSettings(regularizer="none", theta_shrinkage=0.0, tol=1e-8))
    rows = ObjectiveData.of(data)

    def loss(theta):
        potential = make_potential("four-part", torch.from_numpy(theta), torch.from_numpy(data.specialties))
        return label_model_objective(rows, potential).item()

    rng = np.random.default_rng(0)
    best = loss(fit.theta)
    for _ in range(20):
        assert loss(fit.theta + rng.normal(0, 0.05, fit.theta.shape)) > best


def test_the_free_prior_learns_the_balance():
    rng = np.random.default_rng(2)
    y = rng.choice(3, size=6000, p=[0.6, 0.3, 0.1])
    right = rng.random((6000, 9)) < 0.7
    votes = np.where(rng.random((6000, 9)) < 0.6, np.where(right, y[:, None], rng.integers(0, 3, (6000, 9))), -1)
    fit = fit_paper(check_vote_data(votes, 3), PaperSettings(regularizer="none", class_prior="free"))
    np.testing.assert_allclose(fit.class_balance, np.bincount(y) / 6000, atol=0.02)


def test_a_given_balance_takes_the_place_of_the_implied_prior(world):
    balance = np.array([0.4, 0.3, 0.2, 0.1])
    fit = fit_paper(check_vote_data(world.votes, 4, class_balance=balance), NO_R)
    np.testing.assert_allclose(fit.class_balance, balance)


def test_prediction_is_the_normalised_joint(data):
    """With the implied prior, P(y | ŷ) ∝ Π_k φ(y, ŷ^k): Z and Z_y drop out."""
    fit = fit_paper(data, NO_R)
    table = (
        make_potential("four-part", torch.from_numpy(fit.theta), torch.from_numpy(data.specialties)).table().exp()
    ).numpy()
    proba = np.exp(fit.predict_log_proba(data.votes[:30]))
    for row in range(30):
        weights = np.ones(4)
        for k, v in enumerate(data.votes[row]):
            weights *= table[k, :, v] if v != -1 else 1.0
        np.testing.assert_allclose(proba[row], weights / weights.sum(), atol=1e-10)


def test_r_pulls_the_model_to_the_given_accuracies(world, data):
    """The oracle: R fed with the true accuracies, heavily weighted, makes the model's accuracies the true ones."""
    truth = true_accuracy(world.votes, world.y, 4).accuracy

    def gap(fit):
        potential = make_potential("four-part", torch.from_numpy(fit.theta), torch.from_numpy(data.specialties))
        return np.abs(model_accuracy(potential, implied_log_prior(potential))[0].numpy() - truth).mean()

    heavy = PaperSettings(regularizer_weight=20_000.0)
    assert gap(fit_paper(data, heavy, oracle_accuracy=truth)) < 0.5 * gap(fit_paper(data, NO_R))


def test_r_is_inert_under_sums_and_weighs_under_means(specialist_votes):
    world = specialist_votes(n_rows=20_000)
    data = check_vote_data(world.votes, 4, specialties=world.specialties)

    def moved(reduction):
        plain = fit_paper(data, PaperSettings(regularizer="none", reduction=reduction)).theta
        return np.abs(fit_paper(data, PaperSettings(reduction=reduction)).theta - plain).mean()

    assert moved("sum") < 0.1 < moved("mean")


@pytest.mark.parametrize(
    "settings",
    [
        PaperSettings(reduction="mean", labeled_term="conditional"),
        PaperSettings(accuracy_estimator="triplet-median"),
        PaperSettings(accuracy_estimator="em"),
        PaperSettings(regularizer="class-wise", accuracy_estimator="em", reduction="mean"),
        PaperSettings(potential="three-part"),
        PaperSettings(potential="snorkel", class_prior="free"),
    ],
)
def test_every_reading_can_be_run(world, settings):
    y = np.where(np.arange(len(world.y)) < 40, world.y, -1)
    fit = fit_paper(check_vote_data(world.votes, 4, y=y, specialties=world.specialties), settings)
    proba = np.exp(fit.predict_log_proba(world.votes))
    assert np.isfinite(fit.theta).all()
    assert (proba.argmax(1) == world.y).mean() > 0.7


def test_theta_stays_bounded_where_the_votes_cannot_hold_it():
    """Perfect, unanimous LFs push θ to infinity; the shrinkage holds it."""
    y = np.tile([0, 1], 100)
    fit = fit_paper(check_vote_data(np.repeat(y[:, None], 4, axis=1), 2), NO_R)
    assert np.abs(fit.theta).max() < 15


def test_an_objective_without_a_minimum_is_an_error(data):
    """R as printed, added to what is minimised, outweighs the mean over rows: θ runs away."""
    with pytest.raises(InputError, match=r"diverged with regularizer_weight=-1"):
        fit_paper(data, PaperSettings(reduction="mean", regularizer_weight=-1.0))

"""Eq. 11: labelled cross-entropy - Σ log marginal - R (the sign of R is deviation 1)."""

import math

import numpy as np
import pytest
import torch

from dpssl.label_model.checks import check_vote_data
from dpssl.label_model.objective import ObjectiveData, accuracy_regularizer, label_model_objective
from dpssl.label_model.potentials import make_potential

TAU = np.array([[True, True, False], [False, True, True], [True, False, True]])
VOTES = [[0, -1, 2], [1, 1, -1], [-1, -1, -1], [0, 2, 2], [0, 2, 2]]
Y = [0, -1, -1, 2, -1]


@pytest.fixture
def theta():
    return torch.from_numpy(np.random.default_rng(3).normal(size=(3, 3)))


@pytest.fixture
def data():
    return ObjectiveData.of(check_vote_data(VOTES, 3, y=Y, specialties=TAU))


def loss_of(data, theta, log_prior=None, regularizer=0.0, **switches):
    potential = make_potential("four-part", theta, torch.from_numpy(TAU))
    return label_model_objective(data, potential, log_prior, regularizer, **switches)


def slow_terms(theta, printed_phi, enumerate_joint):
    """(labelled, unlabelled) lists of (log P(y, ŷ), log Σ_y P(y, ŷ)), by enumeration."""
    joint = enumerate_joint(printed_phi("four-part", theta.numpy(), TAU), TAU)
    labeled, unlabeled = [], []
    for votes, label in zip(VOTES, Y, strict=True):
        marginal = math.log(sum(joint[y, tuple(votes)] for y in range(3)))
        if label >= 0:
            labeled.append((math.log(joint[label, tuple(votes)]), marginal))
        else:
            unlabeled.append(marginal)
    return labeled, unlabeled


def test_one_vote_by_hand():
    # One LF, τ = {0, 1}, e = 1, two classes: Z = 2 · (1 + 2 + 1/2) = 7; Σ_y P(y, ŷ = 0) = 2.5 / 7, P(0, 0) = 2 / 7.
    data = ObjectiveData.of(check_vote_data([[0], [0]], 2, y=[0, -1], specialties=[[True, True]]))
    potential = make_potential("four-part", torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[True, True]]))
    assert label_model_objective(data, potential).item() == pytest.approx(-math.log(2 / 7) - math.log(2.5 / 7))


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("labeled_term", ["joint", "conditional"])
def test_equals_the_slow_sum(data, theta, printed_phi, enumerate_joint, reduction, labeled_term):
    labeled, unlabeled = slow_terms(theta, printed_phi, enumerate_joint)
    first = [-(joint - (marginal if labeled_term == "conditional" else 0.0)) for joint, marginal in labeled]
    second = [-marginal for marginal in unlabeled]
    reduce = np.mean if reduction == "mean" else np.sum
    expected = reduce(first) + reduce(second)
    loss = loss_of(data, theta, reduction=reduction, labeled_term=labeled_term)
    assert loss.item() == pytest.approx(expected, abs=1e-12)


def test_a_weight_of_two_is_the_row_twice(theta):
    doubled = check_vote_data(VOTES, 3, y=Y, specialties=TAU, sample_weight=[1, 2, 1, 1, 0])
    twice = check_vote_data([*VOTES[:4], VOTES[1]], 3, y=Y, specialties=TAU)
    losses = [loss_of(ObjectiveData.of(data), theta).item() for data in (doubled, twice)]
    assert losses[0] == pytest.approx(losses[1])


def test_the_regularizer_is_subtracted(data, theta):
    potential = make_potential("four-part", theta, torch.from_numpy(TAU))
    r = accuracy_regularizer(potential, None, torch.full((3, 3), 0.8, dtype=torch.float64))
    assert r.item() < 0
    assert loss_of(data, theta, regularizer=r).item() == pytest.approx(loss_of(data, theta).item() - r.item())
    assert loss_of(data, theta, regularizer=r) > loss_of(data, theta)


def test_without_labels_only_the_marginal_is_left(theta, printed_phi, enumerate_joint):
    joint = enumerate_joint(printed_phi("four-part", theta.numpy(), TAU), TAU)
    expected = -sum(math.log(sum(joint[y, tuple(votes)] for y in range(3))) for votes in VOTES)
    data = ObjectiveData.of(check_vote_data(VOTES, 3, specialties=TAU))
    for labeled_term in ("joint", "conditional"):
        assert loss_of(data, theta, labeled_term=labeled_term).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("labeled_term", ["joint", "conditional"])
@pytest.mark.parametrize("free_prior", [False, True])
def test_gradient(data, theta, reduction, labeled_term, free_prior):
    bias = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    accuracy = torch.full((3, 3), 0.7, dtype=torch.float64)

    def objective(theta, bias):
        log_prior = bias.log_softmax(0) if free_prior else None
        potential = make_potential("four-part", theta, torch.from_numpy(TAU))
        r = accuracy_regularizer(potential, log_prior, accuracy)
        loss = label_model_objective(data, potential, log_prior, r, reduction, labeled_term)
        return loss if free_prior else loss + 0.0 * bias.sum()

    assert torch.autograd.gradcheck(objective, (theta.clone().requires_grad_(), bias))


@pytest.mark.parametrize("kind", ["three-part", "snorkel"])
def test_gradient_of_the_other_potentials(data, kind):
    n_columns = 2 if kind == "snorkel" else 3
    theta = torch.from_numpy(np.random.default_rng(5).normal(size=(3, n_columns))).requires_grad_()
    tau = torch.from_numpy(TAU)
    assert torch.autograd.gradcheck(lambda t: label_model_objective(data, make_potential(kind, t, tau)), (theta,))

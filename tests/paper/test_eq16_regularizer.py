"""Eq. 16: R = Σ_i Σ_k â log P_θ + (1 - â) log(1 - P_θ), and its class-wise form (Sec. 4.3)."""

import math

import numpy as np
import pytest
import torch

from dpssl.label_model.objective import accuracy_regularizer
from dpssl.label_model.potentials import implied_log_prior, make_potential, model_accuracy, model_class_accuracy


@pytest.fixture
def potential():
    rng = np.random.default_rng(7)
    tau = np.array([[True, True, False], [False, True, True], [True, True, True]])
    return make_potential("four-part", torch.from_numpy(rng.normal(size=(3, 3))), torch.from_numpy(tau))


def test_by_hand():
    # One LF, two classes, τ = {0, 1}, e = 1: right 2 · 2 of 5 spoken, so P_θ = 4/5 in both tasks.
    potential = make_potential("four-part", torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[True, True]]))
    r = accuracy_regularizer(potential, None, torch.tensor([[0.9, 0.6]], dtype=torch.float64))
    expected = 0.9 * math.log(0.8) + 0.1 * math.log(0.2) + 0.6 * math.log(0.8) + 0.4 * math.log(0.2)
    assert r.item() == pytest.approx(expected)


@pytest.mark.parametrize("class_wise", [False, True])
def test_equals_the_slow_sum(potential, class_wise):
    accuracy = torch.from_numpy(np.random.default_rng(8).random((3, 3)))
    model = model_class_accuracy if class_wise else model_accuracy
    p = model(potential, implied_log_prior(potential))[0]
    total = 0.0
    for k in range(3):
        for i in range(3):
            if class_wise and not potential.specialties[k, i]:
                continue
            a = accuracy[k, i].item()
            total += a * math.log(p[k, i]) + (1 - a) * math.log(1 - p[k, i])
    assert accuracy_regularizer(potential, None, accuracy, class_wise).item() == pytest.approx(total)


def test_largest_where_the_model_agrees(potential):
    p = model_accuracy(potential, implied_log_prior(potential))[0]
    best = accuracy_regularizer(potential, None, p)
    bound = (p * p.log() + (1 - p) * (1 - p).log()).sum()
    assert best.item() == pytest.approx(bound.item())
    for shift in (-0.1, 0.1):
        target = (p + shift).clamp(0.01, 0.99)
        entropy = (target * target.log() + (1 - target) * (1 - target).log()).sum()
        assert accuracy_regularizer(potential, None, target) < entropy


def test_unknown_accuracies_and_dead_lfs_add_nothing(potential):
    accuracy = torch.full((3, 3), 0.8, dtype=torch.float64)
    accuracy[1] = torch.nan
    known = accuracy_regularizer(potential, None, accuracy)
    whole = accuracy_regularizer(potential, None, torch.full((3, 3), 0.8, dtype=torch.float64))
    assert torch.isfinite(known)
    assert known > whole


def test_gradient_stays_finite_when_the_model_is_certain():
    theta = torch.full((2, 2), 60.0, dtype=torch.float64, requires_grad=True)
    potential = make_potential("four-part", theta, torch.tensor([[True, True], [True, False]]))
    accuracy_regularizer(potential, None, torch.full((2, 2), 0.7, dtype=torch.float64)).backward()
    assert torch.isfinite(theta.grad).all()


@pytest.mark.parametrize("class_wise", [False, True])
def test_gradient(class_wise):
    tau = torch.tensor([[True, True, False], [False, True, True]])
    theta = torch.from_numpy(np.random.default_rng(9).normal(size=(2, 3))).requires_grad_()
    accuracy = torch.full((2, 3), 0.75, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda t: accuracy_regularizer(make_potential("four-part", t, tau), None, accuracy, class_wise), (theta,)
    )

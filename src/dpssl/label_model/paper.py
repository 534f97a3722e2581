"""Step 2, the paper's label model: θ fitted by L-BFGS in float64 on Eq. 11. Also Snorkel's potential (Eq. 19).

`PaperSettings()` follows the paper's letter where it is clear, with the sign of R put right. Where it is silent we add
a structured start and a little shrinkage of θ (0 switches it off), and clip triplet estimates: see docs/method.md.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpssl.errors import InputError
from dpssl.label_model.accuracy import ESTIMATORS, estimate_accuracy
from dpssl.label_model.checks import VoteData, check_table_size
from dpssl.label_model.objective import ObjectiveData, accuracy_regularizer, label_model_objective, log_joint
from dpssl.label_model.one_hot import OneHotVotes
from dpssl.label_model.potentials import POTENTIALS, implied_log_prior, initial_theta, make_potential
from dpssl.label_model.votes import Bools, Floats, chunks

CHOICES = {
    "potential": POTENTIALS,
    "class_prior": ("implied", "free"),
    "reduction": ("sum", "mean"),
    "labeled_term": ("joint", "conditional"),
    "regularizer": ("none", "accuracy", "class-wise"),
    "accuracy_estimator": ESTIMATORS,
}
LARGEST_THETA = 100.0  # unshrunk fits reach about 25
GRADIENT_DECIMALS = 10  # on a symmetric saddle rounding noise, so the order of rows and LFs, would pick the way down


@dataclass(frozen=True)
class PaperSettings:
    """Where the paper is open, what to take; the defaults are its letter where it has one."""

    potential: str = "four-part"  # Eq. 9; "three-part": Eq. 20; "snorkel": Eq. 19
    class_prior: str = "implied"  # "implied": Z_y / Z; "free": learnt, which is better
    reduction: str = "sum"  # over rows; "mean" gives R weight beside many rows
    labeled_term: str = "joint"  # -log P(y, ŷ) of labelled rows; "conditional": -log P(y | ŷ)
    regularizer: str = "accuracy"  # R of Eq. 16; "class-wise"; "none" (the paper's Exp4)
    regularizer_weight: float = 1.0
    accuracy_estimator: str = "triplet-mean"  # where R's accuracies come from; "triplet-median", "em"
    theta_shrinkage: float = 0.1  # pull of theta to its start: free, θ inside τ_k can run past 20
    prior_strength: float = 10.0  # pseudo-rows per class that pull a free class prior to uniform (or the given balance)
    max_iter: int = 300
    tol: float = 1e-6  # stop when no gradient entry per row exceeds this

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(choices)}")
        if self.regularizer == "class-wise" and self.accuracy_estimator != "em":
            raise InputError(
                "regularizer='class-wise' needs accuracy_estimator='em': triplets give no class-wise accuracy"
            )


@dataclass(frozen=True)
class PaperFit:
    """θ, and the class prior it is used with."""

    class_balance: Floats  # (C,)
    theta: Floats  # (K, C), or (K, 2) for Snorkel's potential
    specialties: Bools  # (K, C)
    potential: str
    converged: bool
    n_iter: int

    def predict_log_proba(self, votes: NDArray[Any], confidence: NDArray[Any] | None = None) -> Floats:
        """log P(y | ŷ) of every row, (n, C). `confidence` is not used by this model."""
        potential = make_potential(self.potential, torch.from_numpy(self.theta), torch.from_numpy(self.specialties))
        log_prior = torch.from_numpy(self.class_balance).log()
        log_proba = np.empty((len(votes), len(self.class_balance)))
        for rows in chunks(len(votes), max(votes.shape[1], len(self.class_balance))):
            joint = log_joint(OneHotVotes(votes[rows], len(self.class_balance)), potential, log_prior)
            log_proba[rows] = torch.log_softmax(joint, dim=1).numpy()
        return log_proba


def fit_paper(
    data: VoteData, settings: PaperSettings | None = None, *, oracle_accuracy: Floats | None = None
) -> PaperFit:
    """Minimise Eq. 11 in θ (and in the class prior where that is free).

    A given `class_balance` is the class prior, whatever `class_prior` says. `oracle_accuracy` (K, C) replaces the
    estimated accuracies in R by true ones (`accuracy.true_accuracy`): it uses the truth, for experiments only.
    """
    settings = settings or PaperSettings()
    check_table_size("paper", *data.specialties.shape, data.n_classes)
    specialties = torch.from_numpy(data.specialties)
    target = _accuracy_target(data, settings, oracle_accuracy)
    rows = ObjectiveData.of(data)
    start = initial_theta(settings.potential, specialties)
    theta = start.clone().requires_grad_()
    class_bias = torch.zeros(data.n_classes, dtype=torch.float64, requires_grad=True)
    given = None if data.class_balance is None else torch.from_numpy(data.class_balance).log()
    free = given is None and settings.class_prior == "free"

    def objective() -> Tensor:
        potential = make_potential(settings.potential, theta, specialties)
        log_prior = class_bias.log_softmax(0) if free else given
        regularizer: Tensor | float = 0.0
        if target is not None:
            class_wise = settings.regularizer == "class-wise"
            regularizer = settings.regularizer_weight * accuracy_regularizer(potential, log_prior, target, class_wise)
        loss = label_model_objective(rows, potential, log_prior, regularizer, settings.reduction, settings.labeled_term)
        shrinkage = settings.theta_shrinkage * (theta - start).square().sum()
        if free:
            shrinkage = shrinkage - settings.prior_strength * class_bias.log_softmax(0).sum()
        per_row = 1.0 / float(data.sample_weight.sum())
        # One unit for every reduction, so that the stopping rule means the same for all.
        return loss * (per_row if settings.reduction == "sum" else 1.0) + shrinkage * per_row

    parameters = [theta, class_bias] if free else [theta]
    converged, n_iter = _minimize(objective, parameters, settings.max_iter, settings.tol)
    _check_bounded(theta.detach(), settings)
    with torch.no_grad():
        implied = implied_log_prior(make_potential(settings.potential, theta, specialties))
        log_prior = class_bias.log_softmax(0) if free else implied if given is None else given
    return PaperFit(
        class_balance=log_prior.exp().numpy(),
        theta=theta.detach().numpy(),
        specialties=data.specialties,
        potential=settings.potential,
        converged=converged,
        n_iter=n_iter,
    )


def _check_bounded(theta: Tensor, settings: PaperSettings) -> None:
    """Eq. 11 has no minimum where R is added and outweighs the rows: θ runs away, and no label means anything."""
    if bool((theta.abs() <= LARGEST_THETA).all()):  # not so of NaN either
        return
    raise InputError(
        f"the label model diverged with regularizer_weight={settings.regularizer_weight:g}, "
        f"theta_shrinkage={settings.theta_shrinkage:g} and reduction={settings.reduction!r}: theta has no bound. "
        "Take a regularizer_weight of 0 or more, and a theta_shrinkage above 0"
    )


def _accuracy_target(data: VoteData, settings: PaperSettings, oracle_accuracy: Floats | None) -> Tensor | None:
    """The accuracies that R pulls to, (K, C) with NaN where one is unknown; None without R."""
    if settings.regularizer == "none":
        return None
    if oracle_accuracy is not None:
        return torch.from_numpy(np.asarray(oracle_accuracy, dtype=np.float64))
    estimate = estimate_accuracy(settings.accuracy_estimator, data)
    if settings.regularizer == "class-wise":
        assert estimate.class_accuracy is not None  # PaperSettings allows only estimators that have it
        return torch.from_numpy(estimate.class_accuracy)
    return torch.from_numpy(estimate.accuracy)


def _minimize(objective: Any, parameters: list[Tensor], max_iter: int, tol: float) -> tuple[bool, int]:
    """L-BFGS with a strong Wolfe line search; (converged, iterations)."""
    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=max_iter,
        max_eval=2 * max_iter,
        tolerance_grad=tol,
        tolerance_change=1e-14,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = objective()
        loss.backward()
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad = parameter.grad.round(decimals=GRADIENT_DECIMALS)
        return loss

    optimizer.step(closure)
    n_iter, n_evaluations = (int(optimizer.state[parameters[0]][name]) for name in ("n_iter", "func_evals"))
    return n_iter < max_iter and n_evaluations < 2 * max_iter, n_iter

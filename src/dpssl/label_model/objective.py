"""Step 2, the paper's training objective (Eq. 8, 11, 16 = 18 in the appendix), with every open reading as a switch.

In: distinct rows of votes with weights, some of them labelled, and a `Potential`. Out: one differentiable scalar.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpssl.constants import UNLABELED
from dpssl.label_model.checks import VoteData
from dpssl.label_model.one_hot import OneHotVotes
from dpssl.label_model.potentials import (
    Potential,
    implied_log_prior,
    log_lf_partition,
    model_accuracy,
    model_class_accuracy,
)

SMALLEST = 1e-300  # keeps log(0) out of R when a model accuracy saturates


class _SumRows(torch.autograd.Function):
    """OneHotVotes.sum_rows with its gradient, sum_columns."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, votes: OneHotVotes) -> Tensor:
        ctx.votes = votes
        return torch.from_numpy(votes.sum_rows(table.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return torch.from_numpy(ctx.votes.sum_columns(grads[0].contiguous().numpy())), None


def log_joint(votes: OneHotVotes, potential: Potential, log_prior: Tensor | None = None) -> Tensor:
    """Eq. 8: log P(y, ŷ) = Σ_k log φ(y, ŷ^k) - log Z of every row, (n, C).

    Deviation 5: with `log_prior` (C,) the class prior is that instead of the implied Z_y / Z, and each LF's votes are
    normalised within the class: log P(y) + Σ_k [log φ(y, ŷ^k) - log Φ^k(y)].
    """
    n_classes = potential.specialties.shape[1]
    by_vote = potential.table().transpose(1, 2).reshape(-1, n_classes)  # (K·C, C) as [k·C + ŷ, y]
    log_product = _SumRows.apply(by_vote, votes)  # type: ignore[no-untyped-call]  # (n, C)
    log_class_partition = log_lf_partition(potential).sum(0)  # (C,) log Z_y
    if log_prior is None:
        joint: Tensor = log_product - torch.logsumexp(log_class_partition, dim=0)
    else:
        joint = log_product - log_class_partition + log_prior
    return joint


@dataclass(frozen=True)
class ObjectiveData:
    """What Eq. 11 sums over."""

    votes: OneHotVotes  # distinct rows, n of them
    weight: Tensor  # (n,) how often each row counts
    y: Tensor  # (n,) class, -1 where unlabelled

    @classmethod
    def of(cls, data: VoteData) -> "ObjectiveData":
        """The torch side of checked votes."""
        return cls(
            OneHotVotes(data.votes, data.n_classes), torch.from_numpy(data.sample_weight), torch.from_numpy(data.y)
        )


def label_model_objective(
    data: ObjectiveData,
    potential: Potential,
    log_prior: Tensor | None = None,
    regularizer: Tensor | float = 0.0,
    reduction: str = "sum",
    labeled_term: str = "joint",
) -> Tensor:
    """Eq. 11: Σ_{x_l} H(y_l, P(y, ŷ_l)) - Σ_{x_u} log Σ_y P(y, ŷ_u) - R, a scalar.

    Deviation 1: R (Eq. 16) is a log-likelihood, so it is subtracted; the paper adds it to a loss that is minimised.
    Deviation 6: `reduction="mean"` divides each sum over rows by its number of rows, which is what makes R weigh
    anything at all beside 50,000 of them.
    Deviation 8: `labeled_term` is "joint", -log P(y_l, ŷ_l) as printed, or "conditional", -log P(y_l | ŷ_l).
    """
    joint = log_joint(data.votes, potential, log_prior)  # (n, C)
    marginal = torch.logsumexp(joint, dim=1)  # (n,)
    labeled = data.y != UNLABELED
    at_label = joint.gather(1, data.y.clamp(min=0)[:, None])[:, 0]
    if labeled_term == "conditional":
        at_label = at_label - marginal
    labeled_loss = -(data.weight * at_label)[labeled].sum()
    unlabeled_loss = -(data.weight * marginal)[~labeled].sum()
    if reduction == "mean":
        labeled_loss = labeled_loss / data.weight[labeled].sum().clamp(min=1.0)
        unlabeled_loss = unlabeled_loss / data.weight[~labeled].sum().clamp(min=1.0)
    return labeled_loss + unlabeled_loss - regularizer


def accuracy_regularizer(
    potential: Potential, log_prior: Tensor | None, accuracy: Tensor, class_wise: bool = False
) -> Tensor:
    """Eq. 16: R = Σ_i Σ_k â_i^k log P_θ + (1 - â_i^k) log(1 - P_θ), a scalar of at most 0.

    `accuracy` (K, C) is â_i^k = P(ẑ_i^k = z_i | ẑ_i^k ≠ 0) and P_θ is Eq. 21. With `class_wise` it is
    b̂_i^k = P(ẑ_i^k = z_i | ẑ_i^k = 1), P_θ is Eq. 22, and pairs with i ∉ τ_k contribute 0. NaN marks an accuracy that
    could not be estimated (an LF that never speaks): its term is 0.
    """
    prior = implied_log_prior(potential) if log_prior is None else log_prior
    right, wrong = (model_class_accuracy if class_wise else model_accuracy)(potential, prior)
    known = ~accuracy.isnan()
    if class_wise:
        known = known & potential.specialties
    target = torch.where(known, accuracy, 0.5)
    terms = target * right.clamp(min=SMALLEST).log() + (1 - target) * wrong.clamp(min=SMALLEST).log()
    return torch.where(known, terms, 0.0).sum()

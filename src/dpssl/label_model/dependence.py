"""Step 2, the default model: how much LFs depend on each other beyond the class.

Copies first: m LFs whose votes are (nearly) the same weigh 1/m each before anything is fitted, since EM would take a
crowd of copies for the truth. Then, under fitted tables that know the class alone, LF j and k agree on

    ρ_jk = (agreements - expected) / (possible - expected)              0: independent given the class, 1: copies

and β_k = 1 / (1 + Σ_j max(0, (ρ_jk - ρ₀) / (1 - ρ₀))) discounts an LF whose errors others repeat. Dependence below ρ₀
is what a shared difficulty explains better than a discount; small samples raise ρ₀ by two standard errors.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.label_model.em import Model
from dpssl.label_model.votes import Bools, Floats

COPY_OVERLAP = 0.99  # same votes over rows on which either speaks
FREE_DEPENDENCE = 0.2  # ρ₀


@dataclass(frozen=True)
class Agreement:
    """Weighted numbers of rows on which two LFs say the same, and on which both speak; (K, K)."""

    same: Floats
    both: Floats


def count_agreement(votes: NDArray[Any], weight: Floats, n_classes: int) -> Agreement:
    """Agreement of all pairs of LFs over votes (n, K)."""
    n_lfs = votes.shape[1]
    same = np.zeros((n_lfs, n_lfs))
    for c in range(n_classes):
        says = votes == c
        rows, lfs = np.flatnonzero(says.any(1)), np.flatnonzero(says.any(0))
        part = says[np.ix_(rows, lfs)].astype(np.float64)
        same[np.ix_(lfs, lfs)] += part.T @ (part * weight[rows, None])
    spoken = (votes != ABSTAIN).astype(np.float64)
    return Agreement(same, spoken.T @ (spoken * weight[:, None]))


def copy_weights(agreement: Agreement) -> Floats:
    """1 / (number of LFs with nearly the same votes), (K,)."""
    spoken = np.diag(agreement.both)
    either = spoken[:, None] + spoken - agreement.both
    copies = (agreement.same >= COPY_OVERLAP * either) & (either > 0)
    return np.asarray(1.0 / np.maximum(copies.sum(1), 1))


def dependence_weights(agreement: Agreement, n_rows: float, model: Model) -> Floats:
    """β, (K,). Where silence is no evidence (κ = 0) only the rows on which both speak are compared."""
    columns, tables = model.columns, model.tables
    spoken = np.diag(agreement.both)
    speaks = np.maximum(1.0 - tables.silent, 1e-12)  # (K, C)
    agree = np.zeros_like(agreement.same)  # P(j and k say the same)
    agree_speaking = np.zeros_like(agreement.same)  # the same, given that both speak
    for c in np.unique(columns.vote[columns.used]):
        column = np.flatnonzero(columns.vote == c)
        lfs, says = columns.lf[column], tables.says[column]  # (LFs,), (LFs, C)
        told = says / speaks[lfs]
        agree[np.ix_(lfs, lfs)] += (says * tables.balance) @ says.T
        agree_speaking[np.ix_(lfs, lfs)] += (told * tables.balance) @ told.T
    if model.absence_weight > 0:
        possible, expected = np.sqrt(np.outer(spoken, spoken)), n_rows * agree
    else:
        possible, expected = agreement.both, agreement.both * agree_speaking
    excess = (agreement.same - expected) / np.maximum(possible - expected, 1e-9)
    free = FREE_DEPENDENCE + 2.0 / np.sqrt(np.maximum(possible, 1.0))
    repeated = np.clip((excess - free) / np.maximum(1.0 - free, 1e-9), 0.0, 1.0) * (free < 1.0)
    np.fill_diagonal(repeated, 0.0)
    return np.asarray(1.0 / (1.0 + repeated.sum(1)))


def effective_lfs(votes: NDArray[Any], specialties: Bools, weight: Floats | None = None) -> Floats:
    """How many independent LFs a class's specialists amount to, (C,): (Σλ)² / Σλ² of their correlation matrix.

    λ are the eigenvalues of the correlation of 1(ŷ^k = i) over the rows, which may be weighted (n,), among the LFs with
    i ∈ τ_k that vote for i at all. Copies of one LF count 1; a class without specialists 0. It looks at votes alone:
    independent LFs that are always right count 1 too.
    """
    n_classes = specialties.shape[1]
    effective = np.zeros(n_classes)
    if weight is not None:  # an LF that differs on rows without weight alone has no correlation
        votes, weight = votes[weight > 0], weight[weight > 0]
    for i in range(n_classes):
        says = (votes[:, specialties[:, i]] == i).astype(np.float64)  # (n, specialists)
        says = says[:, says.std(0) > 0] if len(says) else says[:, :0]
        if says.shape[1]:
            covariance = np.atleast_2d(np.cov(says, rowvar=False, bias=True, aweights=weight))
            std = np.sqrt(np.diag(covariance))
            correlation = covariance / np.outer(std, std)
            effective[i] = np.trace(correlation) ** 2 / np.square(correlation).sum()  # Σλ² = ‖correlation‖²
    return effective

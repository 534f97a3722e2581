"""The losses of step 1: multiple-choice learning (Eq. 2, 4) and training with abstention (Eq. 5, 6).

Pure functions, one value a sample; the caller takes the mean over the batch. Classes are 0 … C-1, and the abstain
outcome is the last column, C, of `lf_abstain_logits`. `specialties[k]` is tau_k.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.errors import InputError


def count_specialists(n_lfs: int, specialist_ratio: float) -> int:
    """floor(rho K), the LFs that learn from one sample. The tiny term undoes binary rounding (.29 * 100 < 29)."""
    n_specialists = math.floor(specialist_ratio * n_lfs + 1e-9)
    if not 1 <= n_specialists <= n_lfs:
        raise InputError(
            f"--specialist-ratio {specialist_ratio:g} with --n-lfs {n_lfs} leaves {n_specialists} LFs for each sample: "
            f"choose a ratio from {1 / n_lfs:.3g} to 1"
        )
    return n_specialists


def mcl_loss(lf_logits: Tensor, labels: Tensor, n_specialists: int) -> tuple[Tensor, Tensor]:
    """Eq. 4: the mean of the rho K smallest cross-entropies H(y, p_k).

        L = min over M, |M| = rho K, of 1/(rho K) sum_{k in M} H(y_l, p_k(y | x_l))

    `lf_logits` (B, K, C) are those of p_k; rho K = `n_specialists`. Eq. 2 is n_specialists = 1, a plain ensemble K.
    Returns the loss (B,) and the winners M (B, K).
    """
    entropy = _cross_entropy(lf_logits, labels.unsqueeze(1).expand(-1, lf_logits.shape[1]))  # (B, K)
    smallest, winners = entropy.topk(n_specialists, dim=1, largest=False)
    return smallest.mean(1), torch.zeros_like(entropy, dtype=torch.bool).scatter(1, winners, True)


def labeled_loss(lf_abstain_logits: Tensor, labels: Tensor, specialties: Tensor, abstain_weight: float = 1.0) -> Tensor:
    """Eq. 5: every LF learns its own classes and to abstain from the others, summed over the K LFs.

        L_l = sum_k 1(y in tau_k) H(y, p̄_k) + w 1(y not in tau_k) H(0, p̄_k)

    `lf_abstain_logits` (B, K, C + 1), `labels` (B,), `specialties` (K, C) -> (B,). Deviation: w = `abstain_weight` is 1
    in the paper. Most LFs abstain from an image, so their terms outweigh the others by (1 - rho) / rho.
    """
    targets = abstain_targets(labels, specialties)
    return _weighted_sum(_cross_entropy(lf_abstain_logits, targets), targets == specialties.shape[1], abstain_weight)


def abstain_targets(labels: Tensor, specialties: Tensor) -> Tensor:
    """What each LF should say: the label where it is in tau_k, else abstain, C. (B,), (K, C) -> (B, K)."""
    n_classes = specialties.shape[1]
    inside = specialties.t()[labels]  # (B, K)
    return torch.where(inside, labels.unsqueeze(1), n_classes)


def unlabeled_loss(
    weak_probabilities: Tensor,
    weak_logits: Tensor,
    strong_logits: Tensor,
    confidence_threshold: float | Tensor,
    abstain_view: str = "strong",
    abstain_weight: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. 6: each LF learns from its own sure prediction on the weak view, summed over the K LFs.

        L_u = sum_k 1(max p̄_k(weak) >= eps) [ 1(ŷ in tau_k) H(ŷ, p̄_k(strong)) + 1(ŷ abstains) H(0, p̄_k(view)) ]

    `weak_probabilities` (B, K, C + 1) are the targets' p̄_k(weak), perhaps aligned with a prior; `weak_logits` and
    `strong_logits` those of p̄_k on both views; `confidence_threshold` is eps, or one for each prediction (B, K).
    An abstain pseudo-label counts with the weight `abstain_weight` (see `labeled_loss`).
    Deviation: Eq. 6 prints the abstain term on the weak view, where p >= eps makes it nearly zero. `abstain_view` is
    "strong" or, as printed, "weak".
    Returns the loss (B,), the pseudo-labels (B, K) and the mask of those that are trained on (B, K).
    """
    confidence, pseudo_labels = weak_probabilities.max(-1)  # (B, K)
    sure = confidence >= confidence_threshold
    abstains = pseudo_labels == weak_logits.shape[-1] - 1
    entropy = _cross_entropy(strong_logits, pseudo_labels)
    if abstain_view == "weak":
        entropy = torch.where(abstains, _cross_entropy(weak_logits, pseudo_labels), entropy)
    return _weighted_sum(entropy * sure, abstains, abstain_weight), pseudo_labels, sure


def consensus(probabilities: Tensor, specialties: Tensor) -> Tensor:
    """What the LFs together make of each image (B, C): every class's mean p̄_k over its specialists, normalised.

    `probabilities` are p̄_k (B, K, C + 1). Dividing by the number of specialists keeps a class with many of them from
    winning by their number; a class without any gets 0.
    """
    claims = _claims(probabilities, specialties)
    return claims / claims.sum(-1, keepdim=True).clamp_min(1e-12)


def consensus_loss(
    strong_logits: Tensor, labels: Tensor, sure: Tensor, specialties: Tensor, abstain_weight: float = 1.0
) -> Tensor:
    """Eq. 5 on the strong view with pseudo-labels (B,) of the consensus where `sure` (B,): the loss (B,).

    Deviation: Eq. 6 lets each LF learn from its own prediction, abstention included, which then feeds itself. Here an
    LF learns to abstain from an image because the LFs together place it in a class outside tau_k.
    """
    return labeled_loss(strong_logits, labels, specialties, abstain_weight) * sure


def _claims(probabilities: Tensor, specialties: Tensor) -> Tensor:
    """Mean p̄_k of each class over its specialists, (B, K, C + 1) -> (B, C); 0 for a class that has none."""
    n_classes = specialties.shape[1]
    return (probabilities[..., :n_classes] * specialties).sum(1) / specialties.sum(0).clamp_min(1)


def _weighted_sum(entropy: Tensor, abstains: Tensor, abstain_weight: float) -> Tensor:
    """Sum over the LFs of (B, K) terms, those that `abstains` (B, K) with their weight."""
    return torch.where(abstains, abstain_weight * entropy, entropy).sum(1)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """H of (…, C) logits and (…) class targets, without reduction."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)

"""Eq. 17: the noise-aware risk of the end model.

    L = sum_{x_l} H(y_l, p(y | x_l)) + sum_{x_u} E_{y ~ pi} H(y, p(y | x_u))

The expectation over a probabilistic label pi is the cross-entropy with pi itself as the target. One value a sample; the
caller takes the mean of each sum, so that neither depends on its batch size.
"""

from torch import Tensor
from torch.nn import functional as F


def labeled_risk(logits: Tensor, labels: Tensor) -> Tensor:
    """H(y_l, p(y | x_l)) for logits (B, C) and labels (B,) -> (B,)."""
    return F.cross_entropy(logits, labels, reduction="none")


def noise_aware_risk(logits: Tensor, soft_labels: Tensor) -> Tensor:
    """E_{y ~ pi} H(y, p(y | x_u)) for logits (B, C) and soft labels pi (B, C) -> (B,)."""
    return -(soft_labels * F.log_softmax(logits, -1)).sum(-1)

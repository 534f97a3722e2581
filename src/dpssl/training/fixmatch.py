"""FixMatch's loss (Eq. 1), which several systems share."""

from torch import Tensor
from torch.nn import functional as F


def fixmatch_loss(
    weak_probabilities: Tensor, strong_logits: Tensor, threshold: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Eq. 1: a sure prediction on the weak view is the label of the strong view.

        L = 1(max p(y | weak) ≥ ε) H(ŷ, p(y | strong)),    ŷ = argmax p(y | weak)

    `weak_probabilities` and `strong_logits` are (B, C), the former without a gradient; ε = `threshold` is one number
    or (B,), one a row. Returns the loss (B,) and which rows are sure (B,).
    """
    confidence, pseudo_labels = weak_probabilities.max(-1)
    sure = confidence >= threshold
    return F.cross_entropy(strong_logits, pseudo_labels, reduction="none") * sure, sure

"""What several objectives are made of: a weight that ramps up, targets, distances between predictions, mixup."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Ramp(nn.Module):
    """A weight that rises linearly from 0 to 1 over `length` steps; 0 = it is 1 from the start."""

    steps_seen: Tensor

    def __init__(self, length: float) -> None:
        super().__init__()
        self.length = length
        self.register_buffer("steps_seen", torch.zeros(()))

    @torch.no_grad()
    def forward(self) -> Tensor:
        """The weight of this step; counts it."""
        height = (self.steps_seen / self.length).clamp(max=1.0) if self.length else torch.ones_like(self.steps_seen)
        self.steps_seen.add_(1)
        return height


def one_hot(labels: Tensor, n_classes: int) -> Tensor:
    """Labels (B,) as probabilities (B, C). Unlike torch's own it never looks at the values on the host."""
    return (labels[:, None] == torch.arange(n_classes, device=labels.device)).float()


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """p^(1/T), normalised, of rows (B, C); in log space, where small T cannot underflow to 0/0."""
    return torch.softmax(probabilities.clamp_min(1e-30).log() / temperature, -1)


def squared_difference(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over the classes of (p - q)², for logits of p (B, C) and probabilities q (B, C) -> (B,)."""
    return (torch.softmax(logits, -1) - targets).square().mean(-1)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """H(q, p) of logits of p (B, C) and probabilities q (B, C) -> (B,)."""
    return -(targets * F.log_softmax(logits, -1)).sum(-1)


def mix_up(inputs: Tensor, targets: Tensor, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each row with a random other: λ' x + (1 - λ') x', λ' = max(λ, 1 - λ), λ ~ Beta(α, α), one λ a row.

    `inputs` (B, …) and `targets` (B, C) are mixed alike. The larger share stays with a row's own place, so rows keep
    their meaning (labelled, unlabelled). α = 0 is the limit in which nothing is mixed.
    """
    if alpha == 0:
        return inputs, targets
    batch, device = len(inputs), inputs.device
    # Beta(α, α) is g / (g + g') of two Gamma(α) draws: torch.distributions would take them from the global generator.
    gammas = torch._standard_gamma(torch.full((2, batch), alpha, device=device, dtype=torch.float64), generator)
    share = gammas[0] / gammas.sum(0).clamp_min(torch.finfo(torch.float64).tiny)
    share = torch.maximum(share, 1 - share).to(inputs.dtype)
    other = torch.rand(batch, generator=generator, device=device).argsort()
    of_inputs, of_targets = share.view(-1, *[1] * (inputs.ndim - 1)), share[:, None]
    mixed = of_inputs * inputs + (1 - of_inputs) * inputs[other]
    return mixed, of_targets * targets + (1 - of_targets) * targets[other]

"""FlexMatch's curriculum thresholds (Zhang et al., NeurIPS 2021) for predictors whose outcomes have unequal shares.

    s(o) <- m s(o) + (1 - m) share of the batch that is sure (p >= eps) of o           how much of o is learnt
    b(o) = (s(o) / prior(o)) / max(max_o' s(o') / prior(o'), u C),   u = 1 - sum s     u: nobody is sure of it yet
    T(o) = eps M(b(o)),   M(x) = x / (2 - x)

An outcome that is rarely predicted with certainty needs less of it, so what is hard to learn is not crowded out by what
is easy. FlexMatch remembers the last sure label of every image and has equal shares, prior(o) = 1/C; here running
shares take the place of that memory, and s is compared with what it should be, since a labeling function should abstain
far more often than name a class.
"""

import torch
from torch import Tensor, nn

from dpssl.training.distributed import average

DECAY = 0.99
TINY = 1e-12


class Curriculum(nn.Module):
    """s for predictors with the outcome shares `prior` (..., O), as a buffer changed in place."""

    learnt: Tensor

    def __init__(self, prior: Tensor, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.register_buffer("prior", prior)
        self.register_buffer("learnt", torch.zeros_like(prior))

    @torch.no_grad()
    def adapt(self, probabilities: Tensor) -> None:
        """s follows the weak views' probabilities (B, ..., O)."""
        confidence, outcomes = probabilities.max(-1, keepdim=True)
        sure = (confidence >= self.threshold).to(self.learnt.dtype)
        self.learnt.lerp_(average(torch.zeros_like(probabilities).scatter_(-1, outcomes, sure).mean(0)), 1 - DECAY)

    def thresholds(self) -> Tensor:
        """T (..., O)."""
        prior = self.get_buffer("prior")
        relative = torch.where(prior > 0, self.learnt / prior.clamp_min(TINY), 0.0)
        n_outcomes = (prior > 0).sum(-1, keepdim=True)
        unsure = (1 - self.learnt.sum(-1, keepdim=True)) * n_outcomes
        most = torch.maximum(relative.max(-1, keepdim=True).values, unsure).clamp_min(TINY)
        return self.threshold * convex_map(relative / most)

    def thresholds_of(self, probabilities: Tensor) -> Tensor:
        """T of the most probable outcome of each row, (B, ..., O) -> (B, ...)."""
        outcomes = probabilities.argmax(-1, keepdim=True)
        return self.thresholds().expand_as(probabilities).gather(-1, outcomes).squeeze(-1)


def convex_map(x: Tensor) -> Tensor:
    """M(x) = x / (2 - x): 0 to 0, 1 to 1, and below x between, so that thresholds rise late."""
    return x / (2 - x)

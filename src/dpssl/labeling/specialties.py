"""Reading the specialised sets tau_k off the winners of multiple-choice learning.

Deviation: the paper does not say how. Ours: the share of a class's labelled samples, over the last steps and under
augmentation, for which LF k is among the rho K winners of Eq. 4; LF k specialises in the class where that share is at
least a half. A class with fewer than `min_specialists` LFs gets those that win it most often (0 switches this off). An
LF without a class is dead: it only ever abstains.
"""

import torch
from torch import Tensor, nn

from dpssl.training.distributed import add_up

DECAY_PER_STEP = 0.97  # about the last 30 steps count


class WinnerCount(nn.Module):
    """How often each LF was among a class's winners, with recent steps weighing more."""

    wins: Tensor
    seen: Tensor

    def __init__(self, n_lfs: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("wins", torch.zeros(n_classes, n_lfs))
        self.register_buffer("seen", torch.zeros(n_classes))

    @torch.no_grad()
    def add(self, winners: Tensor, labels: Tensor) -> None:
        """`winners` (B, K) of samples with `labels` (B,)."""
        seen_too = torch.cat([winners, torch.ones_like(winners[:, :1])], 1).to(self.wins)  # (B, K + 1)
        counts = self.wins.new_zeros(len(self.seen), seen_too.shape[1]).index_add_(0, labels, seen_too)
        add_up(counts)
        self.wins.mul_(DECAY_PER_STEP).add_(counts[:, :-1])
        self.seen.mul_(DECAY_PER_STEP).add_(counts[:, -1])

    def shares(self) -> Tensor:
        """Share of each class's samples that each LF won, (K, C)."""
        return (self.wins / self.seen.clamp_min(1e-12).unsqueeze(1)).t()


def read_specialties(shares: Tensor, specialist_share: float = 0.5, min_specialists: int = 1) -> Tensor:
    """tau_k as rows of a (K, C) mask, from the winners' shares (K, C)."""
    specialties = shares >= specialist_share
    if min_specialists == 0:
        return specialties
    most_often = shares.topk(min(min_specialists, len(shares)), dim=0).indices
    return specialties.scatter(0, most_often, True)  # changes nothing where a class has enough


def has_converged(losses: list[float], least_gain: float, patience: int = 2) -> bool:
    """Convergence of L^MCL: `patience` windows in a row, none of them `least_gain` below the best before them.

    `losses` are window means. The gain is absolute: a loss on its way to zero falls by a large share of itself for
    ever, long after the winners are settled.
    """
    if len(losses) <= patience:
        return False
    best_before = min(losses[:-patience])
    return all(best_before - loss < least_gain for loss in losses[-patience:])

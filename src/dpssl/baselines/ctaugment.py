"""CTAugment (ReMixMatch, Berthelot et al., ICLR 2020, Sec. 3.2.2): strong views whose strength the network decides.

Each operation has its range of strengths in 17 bins, each bin a rate: the running mean of how well the network still
recognises labelled images so changed, p(y | probe). A view draws `depth` operations, and for each a bin among those
whose rate is at least `threshold` times the operation's best. Rates start at 1, so that at first every bin is drawn.

Ranges are those of the authors' code. Filled in: a bin stands for the strength at its centre; the operations are those
of RandAugment here (blur, invert, rescale and smooth are missing), of which autocontrast and equalize are on or off;
a translation goes up to .3 of the side; Cutout follows with its fixed size, as in FixMatch.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpssl.data.randaugment import parameter_row

N_BINS = 17


class Policy(NamedTuple):
    """What a view draws for each turn and image, (depth, B) each."""

    op: Tensor
    bin: Tensor


class CTAugment(nn.Module):
    rates: Tensor

    def __init__(self, ops: tuple[str, ...], depth: int, threshold: float, decay: float) -> None:
        super().__init__()
        self.ops, self.depth, self.threshold, self.decay = ops, depth, threshold, decay
        self.register_buffer("rates", torch.ones(len(ops), N_BINS))

    def weights(self) -> Tensor:
        """How likely each bin is, given its operation, (n_ops, N_BINS)."""
        rates = self.rates + (1 - self.decay)  # so that an operation whose rates are all 0 can be drawn
        relative = rates / rates.amax(1, keepdim=True)
        kept = torch.where(relative >= self.threshold, relative, 0.0)
        return kept / kept.sum(1, keepdim=True)

    def draw(self, n_images: int, generator: torch.Generator, probe: bool = False) -> Policy:
        """A policy for views to train on, or to probe with, where every bin is as likely."""
        shape, device = (self.depth, n_images), self.rates.device
        op = torch.randint(len(self.ops), shape, generator=generator, device=device)
        if probe:
            return Policy(op, torch.randint(N_BINS, shape, generator=generator, device=device))
        height = torch.rand((*shape, 1), generator=generator, device=device)
        reached = self.weights().cumsum(1)[op]  # (depth, B, N_BINS)
        bins = (reached[..., :-1] <= height).sum(-1)  # rounding may leave the last sum below 1: it has no limit
        return Policy(op, bins)

    def turns(self, images: Tensor, policy: Policy) -> Tensor:
        """The policy as `turns` of a strong view of `images`."""
        height, width = images.shape[2:]
        return strength_table(self.ops, height, width, images.device)[policy.op, policy.bin]

    @torch.no_grad()
    def learn(self, policy: Policy, recognized: Tensor) -> None:
        """rate <- decay rate + (1 - decay) p(y | probe), once per image that a bin changed; `recognized` is (B,).

        A batch changes a bin n times at once: decay^n and the mean of the n, whatever their order.
        """
        cell = (policy.op * N_BINS + policy.bin).flatten()
        value = recognized.to(self.rates).expand(self.depth, -1).flatten()
        count = torch.zeros_like(self.rates).view(-1).scatter_add(0, cell, torch.ones_like(value))
        total = torch.zeros_like(self.rates).view(-1).scatter_add(0, cell, value)
        kept = self.decay**count
        self.rates.mul_(kept.view_as(self.rates)).add_(((1 - kept) * total / count.clamp_min(1)).view_as(self.rates))


@lru_cache(maxsize=64)
def strength_table(ops: tuple[str, ...], height: int, width: int, device: torch.device) -> Tensor:
    """RandAugment's rows of parameters by operation and bin: (n_ops, N_BINS, columns) float64."""
    rows = [
        [parameter_row(op, strength(op, (i + 0.5) / N_BINS, height, width), height, width) for i in range(N_BINS)]
        for op in ops
    ]
    return torch.tensor(rows, dtype=torch.float64, device=device)


def strength(op: str, level: float, height: int, width: int) -> float:
    """What `level` in [0, 1] means to an operation."""
    match op:
        case "brightness" | "color" | "contrast" | "sharpness":
            return 0.1 + 1.9 * level  # factor
        case "posterize":
            return 1 + int(level * 7.999)  # bits
        case "solarize":
            return int(level * 255.999)  # threshold
        case "rotate":
            return round((2 * level - 1) * 45)  # degrees
        case "shear_x" | "shear_y":
            return (2 * level - 1) * 0.3  # slope
        case "translate_x":
            return (2 * level - 1) * 0.3 * width  # pixels
        case "translate_y":
            return (2 * level - 1) * 0.3 * height
        case _:
            return 1.0  # autocontrast and equalize are on; identity has no value

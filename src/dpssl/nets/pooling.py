"""Eq. 3, the feature transform: each labeling function pools the feature map around its own learnable centre.

    f_k = sum_j a_jk (f[j] - c_k),    a_jk = exp(-beta_k |f[j] - c_k|^2) / sum_k' exp(-beta_k' |f[j] - c_k'|^2)

`feature_map` is f (B, HW, D), `centers` c (K, D), `sharpness` beta (K,), `lf_features` f_k (B, K, D). Deviation: the
paper leaves dis() and the scale of f open. Positions f[j] are L2-normalised, the distance is the squared L2 distance,
beta stays positive (its logarithm is learnt) and within `sharpness_range` times its start, and f_k is L2-normalised, as
is usual for such residual pooling (NetVLAD, Arandjelovic et al. 2016). Without normalisation the assignment stays
uniform and all f_k are one vector. An LF may die: without a bound beta_k runs to thousands, or c_k, near what it pools,
where f_k turns fastest, takes one large step away from all positions. Then the LF gets no part of any, cannot even fit
the labelled images, and has no gradient to come back by; so do LFs where the assignment starts too sharp. Hence the
bound, and centres that move `center_rate` times as fast as the rest.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpssl.nets.gradients import scale_gradient

NORM_EPSILON = 1e-6


class FeatureTransform(nn.Module):
    """Feature map (B, D, h, w) -> one feature a labeling function (B, K, D), each of norm `norm`.

    beta_k = start * range^tanh(log_sharpness_k): within a factor `sharpness_range` of the common start; a range of 0
    leaves it free, beta_k = start * exp(log_sharpness_k).
    """

    start_sharpness: Tensor

    def __init__(
        self,
        n_lfs: int,
        n_features: int,
        norm: float = 4.0,
        sharpness_range: float = 2.0,
        center_rate: float = 1.0,
    ) -> None:
        super().__init__()
        self.norm, self.sharpness_range, self.center_rate = norm, sharpness_range, center_rate
        self.centers = nn.Parameter(torch.zeros(n_lfs, n_features))
        self.log_sharpness = nn.Parameter(torch.zeros(n_lfs))
        self.register_buffer("start_sharpness", torch.ones(()))

    def sharpness(self) -> Tensor:
        """beta (K,)."""
        if self.sharpness_range == 0:
            return self.start_sharpness * self.log_sharpness.exp()
        exponent = math.log(self.sharpness_range) * torch.tanh(self.log_sharpness)
        return self.start_sharpness * exponent.exp()

    def slowed_centers(self) -> Tensor:
        """c (K, D), with their gradient multiplied by their rate."""
        return self.centers if self.center_rate == 1 else scale_gradient(self.centers, self.center_rate)

    def assignment(self, positions: Tensor) -> Tensor:
        """a_jk for L2-normalised positions (B, HW, D) -> (B, HW, K)."""
        distance = _squared_distance(positions, self.slowed_centers())
        return torch.softmax(-self.sharpness() * distance, dim=-1)

    def forward(self, features: Tensor) -> Tensor:
        residual, scale = self.unscaled(features)
        return residual * scale

    def unscaled(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals (B, K, D), and the factor (B, K, 1) that gives each its norm.

        Whoever multiplies residuals by weights applies the factor to the C + 1 products in place of D features: on a
        CPU half of the time that the transform takes.
        """
        positions = unit_positions(features)  # (B, HW, D)
        assignment = self.assignment(positions)  # (B, HW, K)
        pulled = assignment.transpose(1, 2) @ positions  # (B, K, D), sum_j a_jk f[j]
        residual = torch.addcmul(pulled, assignment.sum(1).unsqueeze(-1), self.slowed_centers(), value=-1)
        return residual, self.norm * inverse_norm(residual)


class AveragePooling(nn.Module):
    """The paper's Exp2, MCL without the feature transform: every labeling function sees the global average."""

    def __init__(self, n_lfs: int) -> None:
        super().__init__()
        self.n_lfs = n_lfs

    def forward(self, features: Tensor) -> Tensor:
        return average_pool(features).unsqueeze(1).expand(-1, self.n_lfs, -1)

    def unscaled(self, features: Tensor) -> tuple[Tensor, Tensor]:
        averages = self(features)
        return averages, averages.new_ones(())


def unit_rows(x: Tensor) -> Tensor:
    """Rows of norm 1; a zero row stays zero."""
    return x * inverse_norm(x)


def inverse_norm(x: Tensor) -> Tensor:
    """(…, D) -> (…, 1), one over the norm of each row; finite, with a zero gradient, for a zero row."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return norm.clamp_min(NORM_EPSILON).reciprocal()


def unit_positions(features: Tensor) -> Tensor:
    """Feature map (B, D, h, w) -> L2-normalised positions (B, HW, D), in float32 or wider."""
    return unit_rows(_widen(features).flatten(2).transpose(1, 2))


def average_pool(features: Tensor) -> Tensor:
    """Feature map (B, D, h, w) -> global average (B, D), in float32 or wider."""
    return _widen(features).mean((2, 3))


def _widen(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _squared_distance(positions: Tensor, centers: Tensor) -> Tensor:
    cross = positions @ centers.t()
    return (positions.square().sum(-1, keepdim=True) - 2 * cross + centers.square().sum(-1)).clamp_min(0)


@torch.no_grad()
def start_centers(
    transform: FeatureTransform, features: Tensor, entropy: float, generator: torch.Generator, n_iterations: int = 10
) -> None:
    """Put the centres on real feature positions and set the sharpness so that the transform is not inert.

    k-means on the positions of `features` (B, D, h, w), then one common beta, found by bisection, at which the entropy
    of a position's assignment averages `entropy` log K. Random centres far from the data gave an assignment that stayed
    uniform throughout training.
    """
    positions = unit_positions(features).flatten(0, 1)  # (N, D)
    n_lfs = transform.centers.shape[0]
    centers = _spread_start(positions, n_lfs, generator)
    for _ in range(n_iterations):
        nearest = _squared_distance(positions, centers).argmin(-1)
        member = F.one_hot(nearest, n_lfs).to(positions.dtype)  # (N, K)
        count = member.sum(0).unsqueeze(-1)
        centers = torch.where(count > 0, member.t() @ positions / count.clamp_min(1), centers)
    distance = _squared_distance(positions, centers)
    low, high = 1e-3, 1e6
    for _ in range(60):
        middle = (low * high) ** 0.5
        log_assignment = torch.log_softmax(-middle * distance, -1)
        found = -(log_assignment.exp() * log_assignment).sum(-1).mean().item()
        low, high = (middle, high) if found > entropy * math.log(n_lfs) else (low, middle)
    transform.centers.copy_(centers)
    transform.log_sharpness.zero_()
    transform.start_sharpness.fill_((low * high) ** 0.5)


def _spread_start(positions: Tensor, n_centers: int, generator: torch.Generator) -> Tensor:
    """k-means++: each centre is drawn with probability proportional to its squared distance from those before."""
    first = torch.randint(len(positions), (1,), generator=generator, device=positions.device)
    chosen = [positions[first]]
    nearest = _squared_distance(positions, chosen[0]).squeeze(-1)
    for _ in range(n_centers - 1):
        weights = nearest + 1e-12
        index = torch.multinomial(weights, 1, generator=generator)
        chosen.append(positions[index])
        nearest = torch.minimum(nearest, _squared_distance(positions, chosen[-1]).squeeze(-1))
    return torch.cat(chosen)

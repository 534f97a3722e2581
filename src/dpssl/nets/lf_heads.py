"""The network of step 1: a shared backbone, the feature transform, and K labeling functions as one batched layer.

Each labeling function has C class outputs and an abstain output in the last column. Its specialised set tau_k is a row
of `specialties`: `abstain_logits` masks the classes outside it, so that its softmax is p̄_k over tau_k and "abstain".
"""

from typing import cast

import torch
from torch import Tensor, nn

from dpssl.nets.gradients import scale_gradient
from dpssl.nets.pooling import AveragePooling, FeatureTransform

HEAD_STD = 0.1  # of the first logits: small, so that the features and not the draw decide who specialises in what
MASKED_LOGIT = -1e4  # exp() of it is 0 in float32, and unlike -inf it has no NaN gradient


class LFHeads(nn.Module):
    """K linear classifiers, each on its own feature: (B, K, D) times `scale` (B, K, 1) -> (B, K, C + 1)."""

    def __init__(self, n_lfs: int, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_lfs, n_features, n_outputs))
        self.bias = nn.Parameter(torch.zeros(n_lfs, n_outputs))

    def forward(self, lf_features: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        scores = torch.einsum("bkd,kdo->bko", lf_features, self.weight)
        return scores * scale + self.bias


class LFNetwork(nn.Module):
    """Images (B, channels, H, W) -> logits of every labeling function (B, K, C + 1)."""

    specialties: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        n_lfs: int,
        n_classes: int,
        feature_transform: bool = True,
        feature_norm: float = 4.0,
        sharpness_range: float = 2.0,
        center_rate: float = 1.0,
    ) -> None:
        super().__init__()
        n_features = cast(int, backbone.n_features)
        self.backbone = backbone
        self.pooling: FeatureTransform | AveragePooling = AveragePooling(n_lfs)
        if feature_transform:
            self.pooling = FeatureTransform(n_lfs, n_features, feature_norm, sharpness_range, center_rate)
        self.heads = LFHeads(n_lfs, n_features, n_classes + 1)
        self.register_buffer("specialties", torch.ones(n_lfs, n_classes, dtype=torch.bool))
        self.gradient_scale = 1.0  # of the gradient that enters the backbone
        self.abstains = True  # off in the paper's Exp1: the abstain output is masked

    @property
    def n_classes(self) -> int:
        return self.specialties.shape[1]

    def forward(self, images: Tensor) -> Tensor:
        return self.read(self.backbone(images))

    def lf_features(self, images: Tensor) -> Tensor:
        """f_k (B, K, D)."""
        vectors, scale = self._pool(self.backbone(images))
        return vectors * scale

    def read(self, features: Tensor) -> Tensor:
        """Logits of every labeling function (B, K, C + 1) from the feature map (B, D, h, w)."""
        with torch.autocast(features.device.type, enabled=False):
            return cast(Tensor, self.heads(*self._pool(features)))

    def _pool(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Distances and residuals are small differences: they stay in float32 under autocast."""
        with torch.autocast(features.device.type, enabled=False):
            return self.pooling.unscaled(scale_gradient(features, self.gradient_scale))

    def abstain_logits(self, logits: Tensor) -> Tensor:
        """Logits of p̄_k (B, K, C + 1): classes outside tau_k are masked, and abstaining where it is switched off."""
        abstain_column = torch.full_like(self.specialties[:, :1], self.abstains)
        allowed = torch.cat([self.specialties, abstain_column], 1)
        return logits.masked_fill(~allowed, MASKED_LOGIT)


def initialize_heads(heads: LFHeads, generator: torch.Generator) -> None:
    """Small normal weights that differ from one labeling function to the next; biases at zero."""
    n_features = heads.weight.shape[1]
    nn.init.normal_(heads.weight, std=HEAD_STD * n_features**-0.5, generator=generator)
    nn.init.zeros_(heads.bias)

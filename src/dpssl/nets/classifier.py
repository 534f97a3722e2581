"""The end model: any backbone that returns a feature map, global average pooling and a linear layer."""

from typing import cast

import torch
from torch import Tensor, nn

from dpssl.nets.pooling import average_pool


class Classifier(nn.Module):
    """Images (B, channels, H, W) -> logits (B, C)."""

    def __init__(self, backbone: nn.Module, n_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(cast(int, backbone.n_features), n_classes)

    def features(self, images: Tensor) -> Tensor:
        """Pooled features (B, D)."""
        return average_pool(self.backbone(images))

    def forward(self, images: Tensor) -> Tensor:
        pooled = self.features(images)
        with torch.autocast(images.device.type, enabled=False):
            return cast(Tensor, self.head(pooled))


def initialize_head(head: nn.Linear, generator: torch.Generator) -> None:
    """Xavier-normal weights, zero bias."""
    nn.init.xavier_normal_(head.weight, generator=generator)
    nn.init.zeros_(head.bias)

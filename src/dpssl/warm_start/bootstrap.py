"""BYOL (Grill et al. 2020): say of one view of an image what a slow copy of the network makes of another.

No image is pushed away from another, so images of one class may come to lie close together, which SimCLR's loss speaks
against. Nothing in the loss forbids the same answer for all images either; what keeps training away from it is that the
slow copy is a moving average, and that only the fast network has a prediction. Otherwise than there, both views pass
together and share batch statistics, the moving average's decay stays as it is, and the views are SimCLR's. Comes in: a
backbone, and views of a batch of images. Goes out: the loss that trains it.
"""

import copy
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpssl.data.share import Share
from dpssl.nets.pooling import average_pool
from dpssl.training import distributed
from dpssl.training.step import LossAndMetrics

N_HIDDEN, N_PROJECTED = 2048, 256  # 4,096 and 256 in BYOL, whose network has four times as many features


class Bootstrap(nn.Module):
    """A backbone with BYOL's projection and prediction, which are thrown away, and the copy that it learns from."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.projection = _two_layers(cast(int, backbone.n_features))
        self.prediction = _two_layers(N_PROJECTED)
        self._slow = list[Bootstrap]()  # in a list, so that its weights are not trained

    def project(self, views: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, N_PROJECTED, 1, 1)."""
        return cast(Tensor, self.projection(average_pool(self.backbone(views))[..., None, None]))

    def learn_from(self, averaged: Mapping[str, Tensor]) -> None:
        """Let the slow copy have the moving average of this network's weights, by name, which it goes on sharing."""
        slow = copy.deepcopy(self)
        for name, parameter in slow.named_parameters():
            parameter.requires_grad_(False)
            parameter.data = averaged[name]
        self._slow = [slow]

    def loss(self, views: Tensor, share: Share) -> LossAndMetrics:
        """2 - 2 cos(prediction of a view, slow projection of the image's other view), first views before second."""
        with torch.no_grad():
            slow = _directions(self._slow[0].project(views))
        told = _directions(self.prediction(self.project(views)))
        cosine = (told * slow.roll(len(views) // 2, 0)).sum(1)
        of_all = slow if share.size == 1 else distributed.gathered(slow).flatten(0, 1)
        return 2 - 2 * cosine.mean(), {"spread_share": spread_share(of_all)}


def spread_share(vectors: Tensor) -> Tensor:
    """Of unit vectors (B, d): 1 where they point in all directions, 0 where all are the same."""
    return vectors.var(0, correction=0).sum()


def _directions(x: Tensor) -> Tensor:
    """(B, d, 1, 1) -> unit vectors (B, d), in float32 at least."""
    return F.normalize(x.flatten(1).to(torch.promote_types(x.dtype, torch.float32)), dim=1)


def _two_layers(n_in: int) -> nn.Sequential:
    """Dense layers as 1 x 1 convolutions: their batch norm then is one that several processes can have in common."""
    return nn.Sequential(
        nn.Conv2d(n_in, N_HIDDEN, 1, bias=False),
        nn.BatchNorm2d(N_HIDDEN),
        nn.ReLU(),
        nn.Conv2d(N_HIDDEN, N_PROJECTED, 1),
    )

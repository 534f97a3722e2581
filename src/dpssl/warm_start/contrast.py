"""SimCLR (Chen et al. 2020): two views of an image are closer to each other than to those of all other images.

Comes in: a backbone, and views of a batch of images. Goes out: the loss that trains it.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpssl.data.share import Share
from dpssl.nets.pooling import average_pool
from dpssl.training import distributed
from dpssl.training.step import LossAndMetrics

N_HIDDEN, N_EMBEDDED = 512, 128  # of the projection, which is thrown away; 128 as in SimCLR
SAME_PLACE = -1e9  # similarity of a view with itself, which is no answer


class Contrast(nn.Module):
    """A backbone with SimCLR's projection: images (B, channels, H, W) -> embeddings (B, N_EMBEDDED) of length 1."""

    def __init__(self, backbone: nn.Module, temperature: float) -> None:
        super().__init__()
        self.backbone, self.temperature = backbone, temperature
        self.hidden = nn.Linear(cast(int, backbone.n_features), N_HIDDEN)
        self.embedded = nn.Linear(N_HIDDEN, N_EMBEDDED)

    def forward(self, images: Tensor) -> Tensor:
        features = average_pool(self.backbone(images))
        with torch.autocast(images.device.type, enabled=False):
            return F.normalize(self.embedded(F.relu(self.hidden(features.to(self.hidden.weight.dtype)))), dim=1)

    def loss(self, views: Tensor, share: Share) -> LossAndMetrics:
        """Of the views (2b, channels, H, W) of this process' images, first views before second, among all."""
        embeddings = of_all_processes(self(views), share)
        with torch.autocast(views.device.type, enabled=False):
            losses, found = contrast_loss(embeddings, self.temperature)
        loss = losses.mean()
        # every process has the whole loss but its own part of the gradient, and gradients are averaged, not summed
        loss = loss + (share.size - 1) * (loss - loss.detach())
        return loss, {"match_rate": found.float().mean()}


def contrast_loss(embeddings: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """SimCLR's NT-Xent of unit vectors (2B, d), view i of an image in row i and its other view in row i + B.

        loss_i = -log( exp(s_ij / t) / sum over k other than i of exp(s_ik / t) )        s = cosine, j the other view

    Returns the loss of each row and whether the other view is the nearest of all.
    """
    n_views = len(embeddings)
    similarity = (embeddings @ embeddings.T) / temperature
    similarity = similarity + SAME_PLACE * torch.eye(n_views, device=embeddings.device)
    partners = torch.arange(n_views, device=embeddings.device).roll(n_views // 2)
    return F.cross_entropy(similarity, partners, reduction="none"), similarity.argmax(1) == partners


def of_all_processes(embeddings: Tensor, share: Share) -> Tensor:
    """Embeddings (2b, d) of this process' images -> those of the whole batch, (2B, d), first views before second.

    Those of the other processes are constants here: each process sends the gradient through its own images alone.
    """
    if share.size == 1:
        return embeddings
    told = distributed.gathered(embeddings)
    rows = torch.cat([told[: share.rank], embeddings.unsqueeze(0), told[share.rank + 1 :]])  # (processes, 2b, d)
    return torch.cat([rows[:, : len(embeddings) // 2].flatten(0, 1), rows[:, len(embeddings) // 2 :].flatten(0, 1)])

"""Before step 1, if asked for: the backbone learns from the images alone, to tell each from all others.

Not in the paper. Four labels a class say little about pictures, so the first thousands of steps of any pseudo-labelling
go into features that need no label at all. SimCLR (Chen et al. 2020) learns them directly: two views of an image are to
have embeddings closer to each other than to those of all other images of the batch. Comes in: images, no labels. Goes
out: weights of a backbone, averaged over training, that steps 1 and 3, or any other method, start from.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpssl.config import Config
from dpssl.data.batches import ImageBank
from dpssl.data.contrast_views import ViewDraw, apply_view, draw_view
from dpssl.data.feed import Feed, Source
from dpssl.data.share import Share
from dpssl.nets.backbones import build_backbone, rescale_to, scale_free_norm, start_backbone
from dpssl.nets.pooling import average_pool
from dpssl.nets.shared_batch_norm import share_batch_statistics
from dpssl.training import distributed
from dpssl.training.optim import FlatSGD
from dpssl.training.precision import autocast, batch_that_fits
from dpssl.training.seeds import stream_seed
from dpssl.training.stage import annealed_stage, train_stage
from dpssl.training.step import LossAndMetrics, TrainState
from dpssl.training.watch import Watch

STAGE, BACKBONE = "warm", "backbone.safetensors"
N_HIDDEN, N_EMBEDDED = 512, 128  # of the projection, which is thrown away; 128 as in SimCLR
SAME_PLACE = -1e9  # similarity of a view with itself, which is no answer


class Projected(nn.Module):
    """A backbone with SimCLR's projection: images (B, channels, H, W) -> embeddings (B, N_EMBEDDED) of length 1."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.hidden = nn.Linear(cast(int, backbone.n_features), N_HIDDEN)
        self.embedded = nn.Linear(N_HIDDEN, N_EMBEDDED)

    def forward(self, images: Tensor) -> Tensor:
        features = average_pool(self.backbone(images))
        with torch.autocast(images.device.type, enabled=False):
            return F.normalize(self.embedded(F.relu(self.hidden(features.to(self.hidden.weight.dtype)))), dim=1)


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


def train_warm_start(bank: ImageBank, pool: Tensor, config: Config, watch: Watch) -> dict[str, Tensor]:
    """Train on the images at `pool` (n,) of the bank; returns the backbone's weights."""
    settings, device, share = config.warm_start, bank.device, distributed.share()
    with batch_that_fits("--warm-batch-size", settings.warm_batch_size):
        network = _start(config, bank)
        drawn = scale_free_norm(network.backbone)
        share_batch_statistics(network, share, distributed.add_up)
        optimizer = FlatSGD(network, config.optim.momentum, config.optim.weight_decay, config.optim.ema_decay)
        draws = torch.Generator(device).manual_seed(stream_seed(config.run, "draws of the warm start"))
        n_drawn = min(settings.warm_batch_size, len(pool))  # no image is to be told from itself
        source = Source(pool, n_drawn, "evenly", "--warm-batch-size")
        feed = Feed(bank, [source], stream_seed(config.run, f"images of stage {STAGE}"), share)

        def view(images: Tensor) -> Tensor:
            whole = draw_view(n_drawn, settings.warm_crop, config.augment.flip, draws, device)
            return apply_view(images, ViewDraw(*(share.of(column) for column in whole)))

        def compute() -> LossAndMetrics:
            images = feed.batch().images
            views = torch.cat([view(images), view(images)])
            with autocast(device, config.optim.precision):
                embeddings = network(bank.network_input(views))
            losses, found = contrast_loss(of_all_processes(embeddings, share), settings.warm_temperature)
            loss = losses.mean()
            # every process has the whole loss but its own part of the gradient, and gradients are averaged, not summed
            loss = loss + (share.size - 1) * (loss - loss.detach())
            return loss, {"match_rate": found.float().mean()}

        stage = annealed_stage(
            STAGE,
            "Warm start, images alone",
            config.n_warm_steps,
            config.labeling.window,
            settings.warm_learning_rate,
            config.optim,
            fits_time=True,
        )
        train_stage(stage, compute, TrainState(optimizer, {"network": network}, draws), watch, feed=feed)
        optimizer.use_average()
        if config.backbone.rescale_start:
            rescale_to(network.backbone, drawn)
        return {name: tensor.detach().clone() for name, tensor in network.backbone.state_dict().items()}


def _start(config: Config, bank: ImageBank) -> Projected:
    """The network on the bank's device, with drawn weights."""
    n_channels = bank.images.shape[1]
    generator = torch.Generator().manual_seed(stream_seed(config.run, "weights of the warm start"))
    network = Projected(build_backbone(config.backbone, n_channels))
    start_backbone(network.backbone, config.backbone, n_channels, generator)
    for layer in (network.hidden, network.embedded):
        nn.init.kaiming_normal_(layer.weight, generator=generator)
        nn.init.zeros_(layer.bias)
    return network.to(bank.device).train()

"""Training of a backbone on images alone, to be the start of steps 1 and 3 or of any other method.

Not in the paper. Four labels a class say little about pictures, so the first thousands of steps of any pseudo-labelling
go into features that need no label at all. Comes in: images, no labels. Goes out: weights of a backbone, averaged over
training.
"""

import torch
from torch import Tensor, nn

from dpssl.config import BYOL, Config
from dpssl.data.batches import ImageBank
from dpssl.data.contrast_views import ViewDraw, apply_view, draw_view
from dpssl.data.feed import Feed, Source
from dpssl.nets.backbones import build_backbone, rescale_to, scale_free_norm, start_backbone
from dpssl.nets.shared_batch_norm import share_batch_statistics
from dpssl.training import distributed
from dpssl.training.optim import FlatSGD
from dpssl.training.precision import autocast, batch_that_fits
from dpssl.training.seeds import stream_seed
from dpssl.training.stage import annealed_stage, train_stage
from dpssl.training.step import LossAndMetrics, TrainState
from dpssl.training.watch import Watch
from dpssl.warm_start.bootstrap import Bootstrap
from dpssl.warm_start.contrast import Contrast

STAGE, BACKBONE = "warm", "backbone.safetensors"
# BYOL's answers are directions, which a step turns the further the smaller the last layer is. This slope makes the
# first weights torch's own for dense layers, 1 / sqrt(6) of He's: docs/gpu.md.
SMALL = 5**0.5


def train_warm_start(bank: ImageBank, pool: Tensor, config: Config, watch: Watch) -> dict[str, Tensor]:
    """Train on the images at `pool` (n,) of the bank; returns the backbone's weights."""
    settings, device, share = config.warm_start, bank.device, distributed.share()
    with batch_that_fits("--warm-batch-size", settings.warm_batch_size):
        network = _start(config, bank)
        drawn = scale_free_norm(network.backbone)
        share_batch_statistics(network, share, distributed.add_up)
        ema_decay = settings.warm_target_decay if isinstance(network, Bootstrap) else config.optim.ema_decay
        optimizer = FlatSGD(network, config.optim.momentum, config.optim.weight_decay, ema_decay)
        if isinstance(network, Bootstrap):
            network.learn_from(optimizer.averaged(network))
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
                return network.loss(bank.network_input(views), share)

        stage = annealed_stage(
            STAGE,
            "Warm start, images alone",
            config.n_warm_steps,
            config.labeling.window,
            settings.learning_rate,
            config.optim,
            fits_time=True,
        )
        train_stage(stage, compute, TrainState(optimizer, {"network": network}, draws), watch, feed=feed)
        optimizer.use_average()
        if config.backbone.rescale_start:
            rescale_to(network.backbone, drawn)
        return {name: tensor.detach().clone() for name, tensor in network.backbone.state_dict().items()}


def _start(config: Config, bank: ImageBank) -> Contrast | Bootstrap:
    """The network on the bank's device, with drawn weights."""
    n_channels, settings = bank.images.shape[1], config.warm_start
    generator = torch.Generator().manual_seed(stream_seed(config.run, "weights of the warm start"))
    backbone = build_backbone(config.backbone, n_channels)
    start_backbone(backbone, config.backbone, n_channels, generator)
    network = Bootstrap(backbone) if settings.warm_method == BYOL else Contrast(backbone, settings.warm_temperature)
    for name, parameter in network.named_parameters():
        if name.startswith("backbone."):
            continue
        if parameter.ndim > 1 and isinstance(network, Bootstrap):
            nn.init.kaiming_uniform_(parameter, SMALL, generator=generator)
        elif parameter.ndim > 1:
            nn.init.kaiming_normal_(parameter, generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return network.to(bank.device).train()

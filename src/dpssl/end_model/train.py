"""Step 3: train the end model on the given labels and the soft labels of step 2 (Eq. 17).

Comes in: images, given labels, soft labels and which of them are backed by a vote. Goes out: a classifier with its
weights averaged over training. The backbone can be any module that returns a feature map and has `n_features`.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from dpssl.config import Config
from dpssl.data.augment import Augmenter
from dpssl.data.batches import ImageBank, LabeledImages, unlabeled_pool
from dpssl.data.feed import Feed, Source
from dpssl.end_model.losses import labeled_risk, noise_aware_risk
from dpssl.errors import InputError
from dpssl.nets.backbones import build_backbone, start_backbone
from dpssl.nets.classifier import Classifier, initialize_head
from dpssl.nets.shared_batch_norm import share_batch_statistics
from dpssl.training import distributed
from dpssl.training.optim import FlatSGD
from dpssl.training.precision import autocast, batch_that_fits, compiles
from dpssl.training.seeds import stream_seed
from dpssl.training.stage import annealed_stage, train_stage
from dpssl.training.step import LossAndMetrics, TrainState
from dpssl.training.watch import Watch

STAGE = "end"


def build_classifier(config: Config, n_classes: int, n_channels: int, backbone: nn.Module | None = None) -> Classifier:
    """The untrained classifier; the default backbone is that of the configuration."""
    return Classifier(backbone or build_backbone(config.end_backbone, n_channels), n_classes)


def train_end_model(
    bank: ImageBank,
    given_labels: Tensor,
    soft_labels: Tensor,
    covered: Tensor,
    config: Config,
    watch: Watch,
    backbone_start: Mapping[str, Tensor] | None = None,
    backbone: nn.Module | None = None,
    start: Mapping[str, Tensor] | None = None,
) -> Classifier:
    """Train on `given_labels` (n,), -1 for the unlabelled, and `soft_labels` (n, C) where `covered` (n,).

    `backbone_start` are weights to start the backbone from, of step 1 (`--end-start lfs`) or of a warm start, which a
    network of its own leaves aside; `backbone` replaces the configured one; `start` are weights of the whole network to
    go on from.
    """
    settings, device = config.end_model, bank.device
    n_classes = soft_labels.shape[1]
    with batch_that_fits("--end-batch-size", settings.end_batch_size):
        network = build_classifier(config, n_classes, bank.images.shape[1], backbone)
        generator = torch.Generator().manual_seed(stream_seed(config.run, "weights of step 3"))
        if backbone is None:  # one that was passed in may be pretrained
            start_backbone(network.backbone, config.end_backbone, bank.images.shape[1], generator)
        initialize_head(network.head, generator)
        if backbone_start is not None and not settings.has_own_network:
            network.backbone.load_state_dict(backbone_start)
        if start is not None:
            network.load_state_dict(start)
        network.to(device).train()
        share_batch_statistics(network, distributed.share(), distributed.add_up)
        optimizer = FlatSGD(network, config.optim.momentum, config.optim.weight_decay, config.optim.ema_decay)
        draws = torch.Generator(device).manual_seed(stream_seed(config.run, "draws of step 3"))
        labels = given_labels.to(device)
        pool = unlabeled_pool(given_labels, config.labeling.labeled_in_unlabeled)
        targets = soft_labels.to(device, torch.float32)
        n_soft = settings.end_batch_size * settings.end_unlabeled_ratio
        usable = _usable_positions(covered, settings.end_uncovered, pool)
        feed = Feed(
            bank,
            [
                Source(LabeledImages.of(given_labels).positions, settings.end_batch_size, "evenly", "--end-batch-size"),
                Source(usable, n_soft, "any", "--end-batch-size times --end-unlabeled-ratio"),
            ],
            stream_seed(config.run, f"images of stage {STAGE}"),
            distributed.share(),
        )
        augment = Augmenter(config.augment, draws, compiles(device, config.optim.compile), feed.share)
        soft_view: Callable[[Tensor], Tensor] = augment.strong if settings.end_view == "strong" else augment.weak

        def compute() -> LossAndMetrics:
            labeled, soft = feed.parts()
            views = torch.cat([augment.weak(labeled.images), soft_view(soft.images)])
            with autocast(device, config.optim.precision):
                logits = network(bank.network_input(views))
            labeled_logits, soft_logits = torch.split(logits, feed.sizes)
            supervised = labeled_risk(labeled_logits, labels[labeled.positions]).mean()
            noisy = noise_aware_risk(soft_logits, targets[soft.positions]).mean()
            return supervised + noisy, {"labeled_loss": supervised, "soft_loss": noisy}

        stage = annealed_stage(
            STAGE,
            "Step 3 of 3, end model",
            settings.end_steps,
            config.labeling.window,
            settings.end_learning_rate,
            config.optim,
            fits_time=True,
        )
        train_stage(stage, compute, TrainState(optimizer, {"network": network}, draws), watch, feed=feed)
        optimizer.use_average()
        return network.eval()


def _usable_positions(covered: Tensor, uncovered: str, pool: Tensor) -> Tensor:
    """Those of `pool` whose soft labels are trained on."""
    positions = pool[covered[pool]] if uncovered == "skip" else pool
    if len(positions) == 0:
        raise InputError(
            "no image has a vote, so there is nothing to train the end model on: "
            "start a new run that trains the labeling functions longer (--steps), or has fewer (--n-lfs)"
        )
    return positions

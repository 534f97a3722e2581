"""Trains any baseline on the shared loop.

Comes in: images and labels. Goes out: a classifier with its weights averaged over training, and which images the
system would take its own prediction of as a label. Draws, schedule, optimiser, averaging and checkpoints are those of
DP-SSL's own steps; of the section `labeling`, the steps, the batch and the window hold here too.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpssl.baselines.registry import SYSTEMS, method_settings
from dpssl.baselines.system import Batch, Learner, System, Task
from dpssl.class_prior import alignment_prior
from dpssl.config import Config
from dpssl.data.batches import ImageBank, LabeledImages, unlabeled_pool
from dpssl.data.feed import Feed, Source
from dpssl.nets.backbones import build_backbone, start_backbone
from dpssl.nets.classifier import Classifier, initialize_head
from dpssl.training.optim import FlatSGD
from dpssl.training.precision import batch_that_fits
from dpssl.training.seeds import stream_seed
from dpssl.training.stage import annealed_stage, train_stage
from dpssl.training.step import LossAndMetrics, TrainState
from dpssl.training.watch import Watch

STAGE = "fit"


@dataclass(frozen=True)
class Trained:
    network: Classifier  # averaged weights, in evaluation mode
    system: System  # with what it has learnt and counted


def train_baseline(
    bank: ImageBank,
    labels: Tensor,
    n_classes: int,
    config: Config,
    watch: Watch,
    backbone_start: Mapping[str, Tensor] | None = None,
) -> Trained:
    """Train `config.baseline.method` on `labels` (n,), -1 for the unlabelled.

    `backbone_start` are weights of the backbone in place of drawn ones.
    """
    settings, device = config.labeling, bank.device
    with batch_that_fits("--batch-size", settings.batch_size):
        labels = labels.to(device)
        labeled = LabeledImages.of(labels)
        network, system = start(config, n_classes, bank, labeled)
        if backbone_start is not None:
            network.backbone.load_state_dict(backbone_start)
        optimizer = FlatSGD(
            nn.ModuleDict({"network": network, "system": system}),
            config.optim.momentum,
            config.optim.weight_decay,
            config.optim.ema_decay,
        )
        feed = start_feed(bank, labeled, unlabeled_pool(labels, settings.labeled_in_unlabeled), config)
        draws = torch.Generator(device).manual_seed(stream_seed(config.run, "draws of fit"))
        learner = Learner(network, lambda: optimizer.averaged(network), bank, config, draws)

        def compute() -> LossAndMetrics:
            loss, metrics = system.loss(next_batch(feed, labels), learner)
            return loss, with_all_fields(metrics, loss)

        stage = annealed_stage(
            STAGE,
            f"Training {config.baseline.method}",
            settings.steps,
            settings.window,
            config.optim.learning_rate,
            config.optim,
        )
        train_stage(
            stage, compute, TrainState(optimizer, {"network": network, "system": system}, draws), watch, feed=feed
        )
        optimizer.use_average()
        return Trained(network.eval(), system.eval())


def with_all_fields(metrics: Mapping[str, Tensor], loss: Tensor) -> dict[str, Tensor]:
    """The metrics with every field that all methods log.

    One without a threshold learns from every unlabelled image, one without an unlabelled term from none.
    """
    none = torch.zeros_like(loss)
    fields = {"unlabeled_loss": none, "pseudo_label_rate": none + float("unlabeled_loss" in metrics)}
    return {**metrics, **{name: value for name, value in fields.items() if name not in metrics}}


def start(config: Config, n_classes: int, bank: ImageBank, labeled: LabeledImages) -> tuple[Classifier, System]:
    """Classifier and system on the bank's device, with drawn weights."""
    device, n_channels = bank.device, bank.images.shape[1]
    generator = torch.Generator().manual_seed(stream_seed(config.run, "weights of fit"))
    network = Classifier(build_backbone(config.backbone, n_channels), n_classes)
    start_backbone(network.backbone, config.backbone, n_channels, generator)
    initialize_head(network.head, generator)
    method, labels = config.baseline.method, labeled.labels.cpu().numpy()
    size = (bank.images.shape[2], bank.images.shape[3])
    task = task_of(config, n_classes, len(bank), labels, size, network.head.in_features)
    system = SYSTEMS[method](method_settings(method, config.baseline.method_settings), task)
    system.start(generator)
    if caution := system.caution(config.optim.ema_decay):
        warnings.warn(caution, UserWarning, stacklevel=2)
    return network.to(device).train(), system.to(device).train()


def task_of(
    config: Config, n_classes: int, n_images: int, labels: NDArray[np.int64], size: tuple[int, int], n_features: int
) -> Task:
    """What a system is told about its data; `labels` are those of the labelled images."""
    balance = alignment_prior(config.label_model.class_prior, labels, n_classes)
    return Task(
        n_classes=n_classes,
        n_images=n_images,
        n_features=n_features,
        n_steps=config.labeling.steps,
        class_balance=torch.from_numpy(balance).float(),
        n_labeled=len(labels),
        image_size=size,
        strong_ops=config.augment.strong_ops,
    )


def start_feed(bank: ImageBank, labeled: LabeledImages, pool: Tensor, config: Config) -> Feed:
    """Labelled images as evenly as can be; unlabelled ones from the positions in `pool`."""
    settings = config.labeling
    n_unlabeled = settings.batch_size * settings.unlabeled_ratio
    sources = [
        Source(labeled.positions, settings.batch_size, "evenly", "--batch-size"),
        Source(pool, n_unlabeled, "any", "--batch-size times --unlabeled-ratio"),
    ]
    return Feed(bank, sources, stream_seed(config.run, f"images of stage {STAGE}"))


def next_batch(feed: Feed, labels: Tensor) -> Batch:
    labeled, unlabeled = feed.parts()
    return Batch(labeled.images, labels[labeled.positions], unlabeled.images, unlabeled.positions)

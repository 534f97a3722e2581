"""Step 1: train K specialised labeling functions on a shared backbone (Eq. 7).

Comes in: images and the few given labels. Goes out: the network of labeling functions with its specialised sets, its
weights averaged over training. Phase A is multiple-choice learning until it converges; then tau_k is read off the
winners and phase B trains with abstention on labelled and unlabelled images.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpssl.class_prior import ESTIMATED, alignment_prior
from dpssl.config import Config, LabelingConfig
from dpssl.data.augment import Augmenter
from dpssl.data.batches import ImageBank, LabeledImages, draw_any, unlabeled_pool
from dpssl.data.feed import Feed, Source
from dpssl.errors import InputError
from dpssl.labeling.losses import count_specialists
from dpssl.labeling.objective import MultipleChoice, SemiSupervised
from dpssl.labeling.propagate import propagated_labels
from dpssl.labeling.specialties import has_converged, read_specialties
from dpssl.nets.backbones import build_backbone, start_backbone
from dpssl.nets.gradients import scale_gradient
from dpssl.nets.lf_heads import LFNetwork, initialize_heads
from dpssl.nets.pooling import FeatureTransform, start_centers
from dpssl.nets.shared_batch_norm import share_batch_statistics
from dpssl.nets.target_views import is_one_pass, learnt_and_targets
from dpssl.training import distributed
from dpssl.training.optim import FlatSGD
from dpssl.training.precision import autocast, batch_that_fits, compiles
from dpssl.training.seeds import stream_seed
from dpssl.training.stage import Stage, annealed_stage, train_stage
from dpssl.training.step import LossAndMetrics, TrainState
from dpssl.training.watch import Watch

STAGE_MCL, STAGE_SSL = "mcl", "lfs"
N_START_IMAGES = 256  # for k-means on feature positions
UNDECAYED = ("centers", "log_sharpness", "bias")


def build_network(config: Config, n_classes: int, n_channels: int) -> LFNetwork:
    """The untrained network, its weights still undrawn."""
    backbone, settings = build_backbone(config.backbone, n_channels), config.labeling
    network = LFNetwork(
        backbone,
        settings.n_lfs,
        n_classes,
        settings.feature_transform,
        settings.lf_feature_norm,
        settings.sharpness_range,
        settings.center_rate,
    )
    network.abstains = config.labeling.mcl
    return network


def start_network(
    config: Config, n_classes: int, bank: ImageBank, backbone_start: Mapping[str, Tensor] | None = None
) -> LFNetwork:
    """A fresh network on the bank's device, with drawn weights and a feature transform that is not inert.

    `backbone_start` are weights of the backbone in place of drawn ones.
    """
    generator = torch.Generator().manual_seed(stream_seed(config.run, "weights of step 1"))
    n_channels = bank.images.shape[1]
    network = build_network(config, n_classes, n_channels)
    start_backbone(network.backbone, config.backbone, n_channels, generator)
    if backbone_start is not None:
        network.backbone.load_state_dict(backbone_start)
    initialize_heads(network.heads, generator)
    network.to(bank.device)
    if isinstance(network.pooling, FeatureTransform):
        positions = draw_any(len(bank), min(N_START_IMAGES, len(bank)), generator)
        centers_seed = stream_seed(config.run, "centres")
        device_generator = torch.Generator(bank.device).manual_seed(centers_seed)
        with torch.no_grad():
            features = network.backbone(bank.network_input(bank.take(positions)))
        start_centers(network.pooling, features, config.labeling.assignment_entropy, device_generator)
    return network


def backbone_gradient_scale(settings: LabelingConfig) -> float:
    """Deviation: Eq. 5 and 6 sum over K, which makes the backbone's gradient K times FixMatch's. See docs/method.md."""
    if settings.backbone_gradient == "sum":
        return 1.0
    if settings.backbone_gradient == "specialists" and settings.mcl:
        return 1 / count_specialists(settings.n_lfs, settings.specialist_ratio)
    return 1 / settings.n_lfs


def train_lfs(
    bank: ImageBank,
    given_labels: Tensor,
    n_classes: int,
    config: Config,
    watch: Watch,
    start: Mapping[str, Tensor] | None = None,
    backbone_start: Mapping[str, Tensor] | None = None,
    class_shares: NDArray[np.float64] | None = None,
) -> LFNetwork:
    """Both phases. `given_labels` (n,) holds -1 for the unlabelled. Returns the network with its averaged weights.

    `start` are weights to go on from: the network has its specialised sets then, and the first phase is left out.
    `backbone_start` are those of the backbone alone, from a warm start. `class_shares` (C,) are what predictions are
    aligned to; where not given, they follow from `--class-prior` and `given_labels`.
    """
    settings = config.labeling
    with batch_that_fits("--batch-size", settings.batch_size):
        network = start_network(config, n_classes, bank, backbone_start)
        check_left_out(network, settings, bank.device)
        if start is not None:
            network.load_state_dict(start)
        share_batch_statistics(network, distributed.share(), distributed.add_up)
        device = bank.device
        balance = class_shares
        if balance is None:
            balance = alignment_prior(config.label_model.class_prior, given_labels.cpu().numpy(), n_classes)
        optimizer = FlatSGD(
            network, config.optim.momentum, config.optim.weight_decay, config.optim.ema_decay, undecayed=UNDECAYED
        )
        generator = torch.Generator(bank.device).manual_seed(stream_seed(config.run, "draws of step 1"))
        network.train()
        setup = _Setup(
            network,
            optimizer,
            generator,
            bank,
            given_labels.to(device),
            torch.from_numpy(balance).float(),
            config,
            watch,
        )
        propagated = None
        if settings.propagation_steps and start is None:
            watch.say("Step 1 of 3, labels spread among neighbours in the features of the start")
            known_shares = None if config.label_model.class_prior == ESTIMATED else setup.balance
            propagated = propagated_labels(network.backbone, bank, given_labels, n_classes, known_shares)
        if start is None and not distributed.on_writer(lambda: watch.has_checkpoint(STAGE_SSL)):
            _run_multiple_choice(setup)
        _run_semi_supervised(setup, propagated)
        optimizer.use_average()
        return network.eval()


def check_left_out(network: LFNetwork, settings: LabelingConfig, device: torch.device) -> None:
    """Several GPUs share a batch by our own kernels alone, if weak views are left out of the backward pass."""
    alone = distributed.share().size == 1 or device.type == "cpu"
    if alone or is_one_pass(settings) or not settings.joint_forward or getattr(network.backbone, "fits_kernels", False):
        return
    raise InputError(
        "--weak-gradient false: on several GPUs only with Triton, and channels that are powers of 2 up to 1,024 "
        "(--width 1, 2, 4 or 8); leave it out"
    )


@dataclass(frozen=True)
class _Setup:
    """What both phases work on."""

    network: LFNetwork
    optimizer: FlatSGD
    generator: torch.Generator  # of the views
    bank: ImageBank
    given_labels: Tensor  # (n,), -1 = unlabelled
    balance: Tensor  # (C,) class shares that predictions are aligned to
    config: Config
    watch: Watch

    def labeled_source(self) -> Source:
        positions = LabeledImages.of(self.given_labels).positions
        return Source(positions, self.config.labeling.batch_size, "evenly", "--batch-size")

    def feed(self, stage: str, *sources: Source) -> Feed:
        seed = stream_seed(self.config.run, f"images of stage {stage}")
        return Feed(self.bank, sources, seed, distributed.share())


def _run_multiple_choice(setup: _Setup) -> None:
    """Phase A: until L^MCL converges, then fix the specialised sets. In Exp1 all LFs learn from all labelled images."""
    network, bank, config = setup.network, setup.bank, setup.config
    settings, generator = config.labeling, setup.generator
    n_specialists = count_specialists(settings.n_lfs, settings.specialist_ratio) if settings.mcl else settings.n_lfs
    objective = MultipleChoice(settings.n_lfs, network.n_classes, n_specialists, settings.mcl_weight)
    objective.to(bank.device)
    state = TrainState(setup.optimizer, {"network": network, "objective": objective}, generator)
    feed = setup.feed(STAGE_MCL, setup.labeled_source())
    network.gradient_scale = 0.0 if settings.heads_first else settings.mcl_gradient
    augment = Augmenter(config.augment, generator, share=feed.share)

    def compute() -> LossAndMetrics:
        labeled = feed.batch()
        images = augment.weak(labeled.images)
        with autocast(bank.device, config.optim.precision):
            logits = network(bank.network_input(images))
        return objective.loss(logits, setup.given_labels[labeled.positions])

    guess = settings.mcl_weight * math.log(network.n_classes)  # the loss of a guess, weighted as the loss is
    least_gain = settings.mcl_tolerance * guess
    stage = Stage(
        STAGE_MCL,
        "Step 1 of 3, specialising" if settings.mcl else "Step 1 of 3, labelled images",
        settings.mcl_max_steps,
        settings.mcl_window,
        learning_rate=lambda _: config.optim.learning_rate,
    )
    train_stage(
        stage,
        compute,
        state,
        setup.watch,
        is_over=lambda done, losses: done >= settings.mcl_min_steps and has_converged(losses, least_gain),
        feed=feed,
    )
    shares = objective.winners.shares()
    network.specialties.copy_(read_specialties(shares, settings.specialist_share, settings.min_specialists))


def _run_semi_supervised(setup: _Setup, propagated: Tensor | None) -> None:
    """Phase B: Eq. 5 and Eq. 6 in one joint forward pass of all three views, as FixMatch does.

    `propagated` (n, C) are labels that the consensus begins with.
    """
    network, bank, config = setup.network, setup.bank, setup.config
    settings, generator, device = config.labeling, setup.generator, bank.device
    pool = unlabeled_pool(setup.given_labels, settings.labeled_in_unlabeled)
    n_drawn = settings.batch_size * settings.unlabeled_ratio
    unlabeled_source = Source(pool, n_drawn, "any", "--batch-size times --unlabeled-ratio")
    feed = setup.feed(STAGE_SSL, setup.labeled_source(), unlabeled_source)
    n_labeled, n_unlabeled = feed.sizes
    network.gradient_scale = backbone_gradient_scale(settings)
    objective = SemiSupervised(network, settings, setup.balance.to(device)).to(device)
    if propagated is not None and settings.propagation_thresholds:
        objective.adaptive.begin_with(propagated[propagated.any(1)])
    state = TrainState(setup.optimizer, {"network": network, "objective": objective}, generator)
    compiled = compiles(device, config.optim.compile)
    augment = Augmenter(config.augment, generator, compiled, feed.share)
    read = torch.compile(network.read, dynamic=False) if compiled else network.read
    forward = view_forward(network.backbone, read, n_labeled + n_unlabeled, settings)

    def compute() -> LossAndMetrics:
        positions, images = feed.batch()
        weak_views = augment.weak(images, feed.sizes)
        views = torch.cat([weak_views[:n_labeled], augment.strong(images[n_labeled:]), weak_views[n_labeled:]])
        with autocast(device, config.optim.precision):
            logits = forward(bank.network_input(views), objective.backbone_learns() if settings.heads_first else None)
        masked = network.abstain_logits(logits)
        labeled_logits, strong, weak = torch.split(masked, [n_labeled, n_unlabeled, n_unlabeled])
        first = None if propagated is None else propagated[positions[n_labeled:]]
        return objective.loss(labeled_logits, setup.given_labels[positions[:n_labeled]], weak, strong, first)

    stage = annealed_stage(
        STAGE_SSL,
        "Step 1 of 3, labeling functions",
        settings.steps,
        settings.window,
        config.optim.learning_rate,
        config.optim,
        fits_time=True,
    )
    train_stage(stage, compute, state, setup.watch, feed=feed)


def view_forward(
    backbone: nn.Module, read: Callable[[Tensor], Tensor], n_learnt: int, settings: LabelingConfig
) -> Callable[[Tensor, Tensor | None], Tensor]:
    """The network over a batch whose first `n_learnt` images are learnt from; the rest only make pseudo-labels.

    The second argument, where given, multiplies the backbone's gradient.
    """

    one_pass = settings.abstain_view == "weak" or is_one_pass(settings)  # what abstains there is learnt from

    def scaled(features: Tensor, gradient: Tensor | None) -> Tensor:
        return features if gradient is None else scale_gradient(features, gradient)

    def forward(images: Tensor, gradient: Tensor | None = None) -> Tensor:
        if one_pass:
            return read(scaled(backbone(images), gradient))
        learnt, targets = learnt_and_targets(backbone, images, n_learnt, settings)
        with torch.no_grad():
            rest = read(targets)
        return torch.cat([read(scaled(learnt, gradient)), rest])

    return forward

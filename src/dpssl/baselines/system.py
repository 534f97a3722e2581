"""What every baseline is made of: a batch, a learner to ask for views and logits, and a system that has the objective.

A system is one class with one `loss(batch, learner)` that reads as its paper's objective. On a GPU the whole of it is
one captured CUDA graph: shapes never depend on data, nothing waits for the device, every draw comes from the learner's
generator, and what a system remembers between steps is a buffer changed in place, so a checkpoint has it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dpssl.config import ALL_OPS, Config, Section
from dpssl.data.augment import Augmenter
from dpssl.data.batches import ImageBank
from dpssl.errors import InputError
from dpssl.nets.classifier import Classifier
from dpssl.nets.pooling import average_pool
from dpssl.nets.target_views import is_one_pass, learnt_and_targets
from dpssl.training.precision import autocast, compiles
from dpssl.training.step import LossAndMetrics


@dataclass(frozen=True)
class MethodSettings(Section):
    """A method's own settings, with its published values as defaults; given as `--method-settings name=value`."""

    @classmethod
    def shown(cls, name: str) -> str:
        return f"--method-settings {name}"


@dataclass(frozen=True)
class Task:
    """What a system may know of the data beforehand."""

    n_classes: int
    n_images: int  # in the bank, labelled ones included
    n_features: int  # D, of the classifier's pooled features
    n_steps: int
    class_balance: Tensor  # (C,) of the given labels
    n_labeled: int
    image_size: tuple[int, int]  # height, width
    strong_ops: tuple[str, ...] = ALL_OPS  # that a strong view may use


@dataclass(frozen=True)
class Batch:
    """What one step draws. Images are uint8 (B, channels, H, W), not yet augmented."""

    labeled: Tensor
    labels: Tensor  # (B,)
    unlabeled: Tensor
    positions: Tensor  # (B,) of the unlabelled images in the bank


class Learner:
    """The classifier in training: makes views, and runs several of them through the network in one joint pass.

    Batch normalisation thus sees all views of a step at once, as in FixMatch.
    """

    def __init__(
        self,
        network: Classifier,
        averaged: Callable[[], dict[str, Tensor]],
        bank: ImageBank,
        config: Config,
        generator: torch.Generator,
    ) -> None:
        self.network, self.bank, self.config, self.generator = network, bank, config, generator
        self._averaged = averaged  # parameter names -> moving averages
        self._augment = Augmenter(config.augment, generator, compiles(bank.device, config.optim.compile))

    def weak(self, images: Tensor) -> Tensor:
        return self._augment.weak(images)

    def strong(self, images: Tensor, turns: Tensor | None = None) -> Tensor:
        """RandAugment's view, or with the operations that `turns` (dpssl.data.augment.StrongDraw) names."""
        return self._augment.strong(images, turns)

    def images_at(self, positions: Tensor) -> Tensor:
        """Images (B, channels, H, W) that a step itself chooses, which only a bank on the device can give."""
        if self.bank.streamed:
            raise InputError(
                f"--method {self.config.baseline.method}: chooses images of its own in every step, so they must be on "
                "the device; give --image-memory device, or turn that off (docs/baselines.md)"
            )
        return self.bank.images[positions]

    def inputs(self, images: Tensor) -> Tensor:
        """uint8 images -> normalised network input."""
        return self.bank.network_input(images)

    def logits(self, *views: Tensor, n_targets: int = 0) -> tuple[Tensor, ...]:
        """Logits (B, C) of each of several batches of uint8 images, from one forward pass.

        The last `n_targets` batches only make targets: their logits carry no gradient, and with `--weak-gradient false`
        or `--joint-forward false` they have no part in the backward pass.
        """
        logits, _ = self.logits_and_features(*views, n_targets=n_targets)
        return logits

    def logits_and_features(self, *views: Tensor, n_targets: int = 0) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Logits (B, C) and pooled features (B, D) of each batch, from one forward pass."""
        sizes = [len(view) for view in views]
        n_learnt = sum(sizes[: len(sizes) - n_targets])
        inputs = self.inputs(torch.cat(views))
        if is_one_pass(self.config.labeling) or n_learnt == len(inputs):
            features = self.features_of(inputs)
        else:
            with autocast(inputs.device, self.config.optim.precision):
                parts = learnt_and_targets(self.network.backbone, inputs, n_learnt, self.config.labeling)
                features = torch.cat([average_pool(part).float() for part in parts])
        logits = self.head(features)

        def of_each(rows: Tensor) -> tuple[Tensor, ...]:
            parts = torch.split(rows, sizes)
            return tuple(part if i < len(sizes) - n_targets else part.detach() for i, part in enumerate(parts))

        return of_each(logits), of_each(features)

    def logits_of(self, inputs: Tensor) -> Tensor:
        """Logits (B, C) of normalised inputs, such as mixed-up ones."""
        return self.head(self.features_of(inputs))

    def features_of(self, inputs: Tensor) -> Tensor:
        """Pooled features (B, D) of normalised inputs."""
        with autocast(inputs.device, self.config.optim.precision):
            return average_pool(self.network.backbone(inputs)).float()

    def teacher_logits(self, images: Tensor) -> Tensor:
        """Logits (B, C) of uint8 images by the averaged weights, without a gradient."""
        return self._aside(images, self._averaged())

    def guess_logits(self, images: Tensor) -> Tensor:
        """Logits (B, C) of uint8 images by the weights as they are, without a gradient, in a pass of its own."""
        return self._aside(images, {})

    @torch.no_grad()
    def _aside(self, images: Tensor, weights: dict[str, Tensor]) -> Tensor:
        """A pass in training mode that leaves no trace: running statistics are lent as copies, so none counts twice."""
        lent = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        inputs = self.inputs(images)
        with autocast(inputs.device, self.config.optim.precision):
            return cast(Tensor, functional_call(self.network, {**weights, **lent}, (inputs,)))

    def head(self, features: Tensor) -> Tensor:
        """Logits (B, C) of pooled features (B, D)."""
        return cast(Tensor, self.network.head(features))


class System(nn.Module, ABC):
    """Base of every baseline. What it learns beside the classifier is its parameters, what it counts its buffers."""

    Settings: ClassVar[type[MethodSettings]] = MethodSettings
    uses_all_labels: ClassVar[bool] = False  # of the unlabelled images too: an upper bound, no semi-supervision

    def __init__(self, settings: MethodSettings, task: Task) -> None:
        super().__init__()
        self.task = task

    @abstractmethod
    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        """The objective of one batch, and what to log."""

    def caution(self, ema_decay: float) -> str:
        """What somebody who trains it with this `--ema-decay` should know beforehand, if anything."""
        return ""

    def trusts(self, probabilities: Tensor) -> Tensor | None:
        """Which rows of (n, C) the system would take as pseudo-labels now, (n,); None where it has none."""
        return None

    def pseudo_labels(self, probabilities: Tensor, features: Tensor) -> tuple[Tensor, Tensor] | None:
        """The label of each image, and whether it would be trained on now, (n,) each; None where there are none.

        From the classifier's probabilities (n, C) and pooled features (n, D).
        """
        trusted = self.trusts(probabilities)
        return None if trusted is None else (probabilities.argmax(-1), trusted)

    def start(self, generator: torch.Generator) -> None:
        """Draw the start of its own parameters, if it has any."""

"""USADTM: unsupervised semantic aggregation and deformable template matching (Han et al., NeurIPS 2020).

    L = H(y, p(weak x_l)) + λ_u mean over matched x_u of H(ŷ, p(strong x_u)) + w T(p(x_u), p(weak x_u), p(strong x_u))

Template matching: a class's template is the mean feature of its latest labelled views. ŷ is the template nearest to the
weak view's feature; it counts where the cosine and the Euclidean distance agree on it and the cosine exceeds .85.
Templates are deformable: the surest images of each class join the labelled ones, for training and for the templates.
Semantic aggregation: T is the triplet mutual-information loss, minus the mean over the three pairs of views of

    I(P) = Σ_ij P_ij log(P_ij / (P_i P_j)),     P = symmetrised mean of p p'ᵀ over the batch

and with w = 0 it is USADTM without its representation learning. From the paper and its code: .85, λ_u = 1, w = .1, ten
stored views per label, and starts at 2, 20 and 20 of 1,024 epochs for matching, T and joining. Filled in: all views in
one forward pass (the code matches in a pass of its own before it); the number that joins is constant (the code raises
it to the same 4 a class over 30 epochs); templates keep as many views as before when images join (the code keeps ten of
these too); joining starts at 20 on every set (the code: at 50 on CIFAR-100); an epoch is a 1,024th of training, however
long that is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.baselines.parts import one_hot
from dpssl.baselines.system import Batch, Learner, MethodSettings, System, Task
from dpssl.config import option
from dpssl.training.step import LossAndMetrics

N_EPOCHS = 1024
FIRST_MATCHING, FIRST_AGGREGATION, FIRST_JOINING = 2, 20, 20  # epochs
VIEWS_PER_LABEL = 10  # that make a template
LEAST_VIEWS = 10  # of every class before anything is matched
TINY = 1e-15  # below it a probability has no share in the mutual information


class Matched(NamedTuple):
    """What template matching says of some features, (B,) each."""

    label: Tensor
    counts: Tensor  # both distances agree, and the label is near enough


class USADTM(System):
    stored: Tensor
    n_stored: Tensor
    steps_seen: Tensor
    surest_score: Tensor
    surest_position: Tensor
    joined: Tensor

    @dataclass(frozen=True)
    class Settings(MethodSettings):
        aggregation_weight: float = option(0.1, "of the mutual information; 0 = no representation learning", least=0)
        least_cosine: float = option(0.85, "least cosine of a feature and its template", least=-1, most=1)
        unlabeled_weight: float = option(1.0, "weight of the matched images", least=0)
        n_joining: int = option(4, "surest images of each class that join the labelled ones; 0 = none", least=0)

    def __init__(self, settings: "USADTM.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.settings = settings
        n_classes, n_joining = task.n_classes, settings.n_joining
        n_views = VIEWS_PER_LABEL * max(1, task.n_labeled // n_classes)
        self.epoch_steps = max(1, task.n_steps // N_EPOCHS)
        self.register_buffer("stored", torch.zeros(n_classes, n_views, task.n_features))
        self.register_buffer("n_stored", torch.zeros(n_classes, dtype=torch.int64))  # ever, of each class
        self.register_buffer("steps_seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("surest_score", torch.full((n_classes, n_joining), -1.0))  # of this epoch, and where
        self.register_buffer("surest_position", torch.full((n_classes, n_joining), -1))
        self.register_buffer("joined", torch.full((n_classes, n_joining), -1))  # positions; -1 = none

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        settings, images, labels = self.settings, batch.labeled, batch.labels
        if settings.n_joining:
            images, labels = self.join(images, labels, learner.images_at, learner.generator)
        views = [learner.weak(images), learner.strong(batch.unlabeled)]
        n_targets = 1
        if settings.aggregation_weight:  # then the weak views are trained on too, and the images as they are
            views, n_targets = [*views, batch.unlabeled], 0
        logits, features = learner.logits_and_features(*views, learner.weak(batch.unlabeled), n_targets=n_targets)
        labeled, strong, weak = logits[0], logits[1], logits[-1]

        self.store(features[0].detach(), labels)
        matched = self.match(features[-1].detach())
        self.note_surest(matched.label, torch.softmax(weak.detach(), -1).amax(-1), batch.positions)
        counts = matched.counts & self._from_epoch(FIRST_MATCHING)
        supervised = F.cross_entropy(labeled, labels)
        entropy = F.cross_entropy(strong, matched.label, reduction="none")
        unsupervised = (entropy * counts).sum() / counts.sum().clamp_min(1)
        loss = supervised + settings.unlabeled_weight * unsupervised
        metrics = {
            "labeled_loss": supervised,
            "unlabeled_loss": unsupervised,
            "pseudo_label_rate": counts.float().mean(),
        }
        if settings.aggregation_weight:
            metrics["aggregation_loss"] = triplet_loss(logits[2], weak, strong)
            weight = settings.aggregation_weight * self._from_epoch(FIRST_AGGREGATION)
            loss = loss + weight * metrics["aggregation_loss"]
        self.steps_seen.add_(1)
        return loss, metrics

    @torch.no_grad()
    def store(self, features: Tensor, labels: Tensor) -> None:
        """Put features (B, D) of labelled views in the place of the oldest of their class."""
        of_class = one_hot(labels, self.task.n_classes).long()  # (B, C)
        rank = of_class.cumsum(0).gather(1, labels[:, None]).squeeze(1) - 1  # how many of its class stand before it
        self.stored[labels, (self.n_stored[labels] + rank) % self.stored.shape[1]] = features
        self.n_stored.add_(of_class.sum(0))

    def templates(self) -> Tensor:
        """The mean stored feature of each class, (C, D)."""
        filled = self.n_stored.clamp(1, self.stored.shape[1])
        return self.stored.sum(1) / filled[:, None]

    @torch.no_grad()
    def match(self, features: Tensor) -> Matched:
        """The nearest template of features (B, D)."""
        templates = self.templates()
        cosine, label = (F.normalize(features, dim=-1) @ F.normalize(templates, dim=-1).T).max(-1)
        agrees = torch.cdist(features, templates).argmin(-1) == label
        ready = (self.n_stored > LEAST_VIEWS).all()
        return Matched(label, agrees & (cosine > self.settings.least_cosine) & ready)

    @torch.no_grad()
    def note_surest(self, labels: Tensor, scores: Tensor, positions: Tensor) -> None:
        """Keep the surest images of each class in this epoch; at its end they become those that join."""
        n_joining = self.settings.n_joining
        if n_joining == 0:
            return
        ends = (self.steps_seen + 1) % self.epoch_steps == 0
        of_class = labels == torch.arange(self.task.n_classes, device=labels.device)[:, None]  # (C, B)
        score = torch.cat([self.surest_score, torch.where(of_class, scores, -1.0)], 1)
        position = torch.cat([self.surest_position, positions.expand_as(of_class)], 1)
        best, place = score.topk(n_joining, 1)
        position = torch.where(best >= 0, position.gather(1, place), -1)
        self.joined.copy_(torch.where(ends & self._from_epoch(FIRST_JOINING), position, self.joined))
        self.surest_score.copy_(torch.where(ends, -1.0, best))
        self.surest_position.copy_(torch.where(ends, -1, position))

    def join(
        self, images: Tensor, labels: Tensor, images_at: Callable[[Tensor], Tensor], generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """The labelled batch, with images that joined in as large a part of it as they are of all labelled ones."""
        joined, batch, device = self.joined.flatten(), len(labels), labels.device
        n_joined = (joined >= 0).sum()
        slot = torch.randint(len(joined), (batch,), generator=generator, device=device)
        chance = len(joined) / (self.task.n_labeled + n_joined)  # of a slot, which may be empty
        replaced = (torch.rand(batch, generator=generator, device=device) < chance) & (joined[slot] >= 0)
        theirs = images_at(joined[slot].clamp_min(0))
        return (
            torch.where(replaced[:, None, None, None], theirs, images),
            torch.where(replaced, slot // self.settings.n_joining, labels),
        )

    def pseudo_labels(self, probabilities: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.match(features)

    def _from_epoch(self, epoch: int) -> Tensor:
        return self.steps_seen >= epoch * self.task.n_steps / N_EPOCHS


def triplet_loss(original: Tensor, weak: Tensor, strong: Tensor) -> Tensor:
    """T: minus the mean mutual information of the three pairs of views, from their logits (B, C)."""
    views = [torch.softmax(logits, -1) for logits in (original, weak, strong)]
    pairs = ((views[0], views[1]), (views[0], views[2]), (views[1], views[2]))
    return -torch.stack([mutual_information(one, other) for one, other in pairs]).mean()


def mutual_information(one: Tensor, other: Tensor) -> Tensor:
    """I(P) of the classes that two views' probabilities (B, C) give to the same images."""
    joint = one.T @ other
    joint = (joint + joint.T) / 2
    joint = joint / joint.sum()
    marginal = joint.sum(0).clamp_min(TINY).log()
    joint = joint.clamp_min(TINY)
    return (joint * (joint.log() - marginal[:, None] - marginal[None, :])).sum()

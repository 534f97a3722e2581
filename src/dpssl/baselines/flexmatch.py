"""FlexMatch (Zhang et al., NeurIPS 2021): FixMatch with a threshold per class that follows how well it is learnt.

    σ(c) = |{u : last sure pseudo-label of u is c}|       β(c) = σ(c) / max(max σ, n - Σ σ)
    T(c) = τ M(β(c)),  M(x) = x / (2 - x)
    L = H(y, p(weak x_l)) + λ_u 1(max p(weak x_u) ≥ T(ŷ)) H(ŷ, p(strong x_u)),  ŷ = argmax p(weak x_u)

"Sure" is always the fixed τ. n - Σ σ, the images without a sure pseudo-label yet, is the paper's warm-up: while they
are the majority, thresholds rise with the number of images learnt. Defaults are the paper's: τ = .95, λ_u = 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.baselines.system import Batch, Learner, MethodSettings, System, Task
from dpssl.config import option
from dpssl.training.curriculum import convex_map
from dpssl.training.fixmatch import fixmatch_loss
from dpssl.training.step import LossAndMetrics


class FlexMatch(System):
    learnt_as: Tensor

    @dataclass(frozen=True)
    class Settings(MethodSettings):
        threshold: float = option(0.95, "of the class that is learnt best, and of a sure pseudo-label", least=0, most=1)
        unlabeled_weight: float = option(1.0, "weight of the unlabelled loss", least=0)
        warmup: bool = option(True, "count the images without a sure pseudo-label in the normaliser")

    def __init__(self, settings: "FlexMatch.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.settings = settings
        # The class each image was last sure to be, C = none yet. One more place takes what is written for no image.
        self.register_buffer("learnt_as", torch.full((task.n_images + 1,), task.n_classes))

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        labeled, strong, weak = learner.logits(
            learner.weak(batch.labeled), learner.strong(batch.unlabeled), learner.weak(batch.unlabeled), n_targets=1
        )
        supervised = F.cross_entropy(labeled, batch.labels)
        targets = torch.softmax(weak, -1)
        unsupervised, sure = fixmatch_loss(targets, strong, self.thresholds()[targets.argmax(-1)])
        self.remember(batch.positions, targets)
        loss = supervised + self.settings.unlabeled_weight * unsupervised.mean()
        return loss, {
            "labeled_loss": supervised,
            "unlabeled_loss": unsupervised.mean(),
            "pseudo_label_rate": sure.float().mean(),
        }

    def thresholds(self) -> Tensor:
        """T(c), (C,)."""
        learnt_as = self.learnt_as[:-1]
        counts = torch.zeros(self.task.n_classes + 1, device=learnt_as.device)
        counts.scatter_add_(0, learnt_as, torch.ones_like(learnt_as, dtype=counts.dtype))
        n_learnt = counts[:-1]
        most = (counts if self.settings.warmup else n_learnt).max().clamp_min(1)
        return self.settings.threshold * convex_map(n_learnt / most)

    @torch.no_grad()
    def remember(self, positions: Tensor, probabilities: Tensor) -> None:
        confidence, label = probabilities.max(-1)
        nowhere = len(self.learnt_as) - 1
        self.learnt_as[torch.where(confidence >= self.settings.threshold, positions, nowhere)] = label

    def trusts(self, probabilities: Tensor) -> Tensor:
        confidence, label = probabilities.max(-1)
        return confidence >= self.thresholds()[label]

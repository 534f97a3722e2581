"""FixMatch (Sohn et al., NeurIPS 2020), with RandAugment as its strong view.

    L = H(y, p(weak x_l)) + λ_u 1(max p(weak x_u) ≥ τ) H(argmax p(weak x_u), p(strong x_u))

Defaults are the paper's: τ = .95, λ_u = 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.baselines.system import Batch, Learner, MethodSettings, System, Task
from dpssl.config import option
from dpssl.training.fixmatch import fixmatch_loss
from dpssl.training.step import LossAndMetrics


class FixMatch(System):
    @dataclass(frozen=True)
    class Settings(MethodSettings):
        threshold: float = option(0.95, "least confidence of a pseudo-label that is trained on", least=0, most=1)
        unlabeled_weight: float = option(1.0, "weight of the unlabelled loss", least=0)

    def __init__(self, settings: "FixMatch.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.settings = settings

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        labeled, strong, weak = learner.logits(
            learner.weak(batch.labeled), learner.strong(batch.unlabeled), learner.weak(batch.unlabeled), n_targets=1
        )
        return self.objective(labeled, batch.labels, strong, weak)

    def objective(self, labeled: Tensor, labels: Tensor, strong: Tensor, weak: Tensor) -> LossAndMetrics:
        """The loss above from logits (B, C), whatever made the strong view."""
        supervised = F.cross_entropy(labeled, labels)
        unsupervised, sure = fixmatch_loss(torch.softmax(weak, -1), strong, self.settings.threshold)
        loss = supervised + self.settings.unlabeled_weight * unsupervised.mean()
        return loss, {
            "labeled_loss": supervised,
            "unlabeled_loss": unsupervised.mean(),
            "pseudo_label_rate": sure.float().mean(),
        }

    def trusts(self, probabilities: Tensor) -> Tensor:
        return probabilities.amax(-1) >= self.settings.threshold

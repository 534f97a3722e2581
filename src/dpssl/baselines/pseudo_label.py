"""Pseudo-Labeling (Lee, 2013), as in the comparison of FixMatch.

    L = H(y, p(weak x_l)) + λ r(t) 1(max p(weak x_u) ≥ τ) H(argmax p(weak x_u), p(weak x_u))

A sure prediction is the label of the very view it was made on: FixMatch without a strong view. r(t) rises to 1 over the
first 40 % of training, τ = .95 and λ = 1: the values of FixMatch's code (pseudo_label.py).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.baselines.parts import Ramp
from dpssl.baselines.system import Batch, Learner, MethodSettings, System, Task
from dpssl.config import option
from dpssl.training.fixmatch import fixmatch_loss
from dpssl.training.step import LossAndMetrics


class PseudoLabel(System):
    @dataclass(frozen=True)
    class Settings(MethodSettings):
        threshold: float = option(0.95, "least confidence of a pseudo-label that is trained on", least=0, most=1)
        unlabeled_weight: float = option(1.0, "weight of the unlabelled loss, at full height", least=0)
        ramp: float = option(0.4, "share of training over which that weight rises from 0", least=0, most=1)

    def __init__(self, settings: "PseudoLabel.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.settings, self.ramp = settings, Ramp(settings.ramp * task.n_steps)

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        labeled, weak = learner.logits(learner.weak(batch.labeled), learner.weak(batch.unlabeled))
        supervised = F.cross_entropy(labeled, batch.labels)
        unsupervised, sure = fixmatch_loss(torch.softmax(weak.detach(), -1), weak, self.settings.threshold)
        loss = supervised + self.settings.unlabeled_weight * self.ramp() * unsupervised.mean()
        return loss, {
            "labeled_loss": supervised,
            "unlabeled_loss": unsupervised.mean(),
            "pseudo_label_rate": sure.float().mean(),
        }

    def trusts(self, probabilities: Tensor) -> Tensor:
        return probabilities.amax(-1) >= self.settings.threshold

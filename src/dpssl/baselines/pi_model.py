"""Π-Model (Laine & Aila, ICLR 2017), as in the comparison of FixMatch.

    L = H(y, p(weak x_l)) + λ r(t) mean_c (p(weak x_u) - p'(weak' x_u))²

Two weak views of one image should be predicted alike; p' carries no gradient. r(t) rises to 1 over the first 40 % of
training and λ = 10: the values of FixMatch's code (pi_model.py), whose figures the tables quote.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dpssl.baselines.parts import Ramp, squared_difference
from dpssl.baselines.system import Batch, Learner, MethodSettings, System, Task
from dpssl.config import option
from dpssl.training.step import LossAndMetrics


class PiModel(System):
    @dataclass(frozen=True)
    class Settings(MethodSettings):
        unlabeled_weight: float = option(10.0, "weight of the consistency of two views, at full height", least=0)
        ramp: float = option(0.4, "share of training over which that weight rises from 0", least=0, most=1)

    def __init__(self, settings: "PiModel.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.settings, self.ramp = settings, Ramp(settings.ramp * task.n_steps)

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        labeled, student, teacher = learner.logits(
            learner.weak(batch.labeled), learner.weak(batch.unlabeled), learner.weak(batch.unlabeled), n_targets=1
        )
        supervised = F.cross_entropy(labeled, batch.labels)
        consistency = squared_difference(student, torch.softmax(teacher, -1)).mean()
        loss = supervised + self.settings.unlabeled_weight * self.ramp() * consistency
        return loss, {"labeled_loss": supervised, "unlabeled_loss": consistency}

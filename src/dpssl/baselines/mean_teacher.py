"""Mean Teacher (Tarvainen & Valpola, NeurIPS 2017), as in the comparison of FixMatch.

    L = H(y, p(weak x_l)) + λ r(t) mean_c (p(weak x_u) - p_avg(weak' x_u))²

The Π-Model with another teacher: p_avg has the moving average of the weights, here the one that every method predicts
with at the end (`--ema-decay`, .999 as published). r(t) rises to 1 over the first 40 % of training and λ = 50: the
values of FixMatch's code (mean_teacher.py), whose figures the tables quote. The 1,000 steps of its average are a
thousandth of its training; in a short one they hold the student to what it believed long ago (docs/reproduce.md).
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dpssl.baselines.parts import Ramp, squared_difference
from dpssl.baselines.system import Batch, Learner, MethodSettings, System, Task
from dpssl.config import option
from dpssl.training.step import LossAndMetrics

PUBLISHED_SHARE = 1000 / 2**20  # of training, that the teacher is an average over
SLOW_SHARE = 0.01  # from which it costs: 42 % of the labels right at 6 % of training, 74 at .6 (SVHN at 16 pixels)


class MeanTeacher(System):
    @dataclass(frozen=True)
    class Settings(MethodSettings):
        unlabeled_weight: float = option(50.0, "weight of the consistency with the teacher, at full height", least=0)
        ramp: float = option(0.4, "share of training over which that weight rises from 0", least=0, most=1)

    def __init__(self, settings: "MeanTeacher.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.settings, self.ramp = settings, Ramp(settings.ramp * task.n_steps)

    def caution(self, ema_decay: float) -> str:
        n_steps, n_averaged = self.task.n_steps, math.inf if ema_decay == 1 else 1 / (1 - ema_decay)
        if ema_decay == 0 or n_averaged <= SLOW_SHARE * n_steps:
            return ""
        faster = max(0.0, 1 - 1 / (PUBLISHED_SHARE * n_steps))
        return (
            f"the teacher of mean-teacher is an average over {n_averaged:,.0f} of {n_steps:,} steps, too slow "
            f"to teach; --ema-decay {faster:.2g} is the published share of training"
        )

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        labeled, student = learner.logits(learner.weak(batch.labeled), learner.weak(batch.unlabeled))
        teacher = learner.teacher_logits(learner.weak(batch.unlabeled))
        supervised = F.cross_entropy(labeled, batch.labels)
        consistency = squared_difference(student, torch.softmax(teacher, -1)).mean()
        loss = supervised + self.settings.unlabeled_weight * self.ramp() * consistency
        return loss, {"labeled_loss": supervised, "unlabeled_loss": consistency}

"""UDA, Unsupervised Data Augmentation (Xie et al., NeurIPS 2020).

    L = mean of H(y, p(weak x_l)) where p(y | x_l) ≤ η(t), + λ_u 1(max q ≥ β) KL(q_T || p(strong x_u)),  q = p(weak x_u)

q_T is q sharpened by the temperature T. η(t) is training-signal annealing: labelled images that are learnt better than
η are left out, and η rises from 1/C to 1 with a(t), t in [0, 1]:

    linear a = t          log a = 1 - exp(-5 t)          exp a = exp(5 (t - 1))          η = a (1 - 1/C) + 1/C

T = .4, β = .8 and λ_u = 1 are the paper's for CIFAR-10 and SVHN; annealing is off, as its code has it by default.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.baselines.parts import Ramp, soft_cross_entropy
from dpssl.baselines.system import Batch, Learner, MethodSettings, System, Task
from dpssl.config import option
from dpssl.training.step import LossAndMetrics

SCALE = 5.0  # of the log and exp schedules


class UDA(System):
    @dataclass(frozen=True)
    class Settings(MethodSettings):
        threshold: float = option(0.8, "least confidence of a prediction that is trained on, β", least=0, most=1)
        temperature: float = option(0.4, "of the sharpening; 1 = none", least=1e-3)
        unlabeled_weight: float = option(1.0, "weight of the unlabelled loss", least=0)
        annealing: str = option("none", "schedule of the training signal", choices=("none", "linear", "log", "exp"))

    def __init__(self, settings: "UDA.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.settings, self.progress = settings, Ramp(task.n_steps)

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        labeled, strong, weak = learner.logits(
            learner.weak(batch.labeled), learner.strong(batch.unlabeled), learner.weak(batch.unlabeled), n_targets=1
        )
        supervised = self._annealed(labeled, batch.labels)
        target_log = F.log_softmax(weak / self.settings.temperature, -1)
        target = target_log.exp()
        divergence = soft_cross_entropy(strong, target) + (target * target_log).sum(-1)  # KL = H(q, p) - H(q)
        sure = torch.softmax(weak, -1).amax(-1) >= self.settings.threshold
        unsupervised = (divergence * sure).mean()
        return supervised + self.settings.unlabeled_weight * unsupervised, {
            "labeled_loss": supervised,
            "unlabeled_loss": unsupervised,
            "pseudo_label_rate": sure.float().mean(),
        }

    def _annealed(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy of those labelled images that are not learnt too well yet."""
        entropy = F.cross_entropy(logits, labels, reduction="none")
        if self.settings.annealing == "none":
            return entropy.mean()
        limit = signal_limit(self.settings.annealing, self.progress(), self.task.n_classes)
        kept = torch.exp(-entropy.detach()) <= limit
        return (entropy * kept).sum() / kept.sum().clamp_min(1)

    def trusts(self, probabilities: Tensor) -> Tensor:
        return probabilities.amax(-1) >= self.settings.threshold


def signal_limit(schedule: str, progress: Tensor, n_classes: int) -> Tensor:
    """η(t) at `progress` t in [0, 1]."""
    if schedule == "linear":
        height = progress
    elif schedule == "log":
        height = 1 - torch.exp(-SCALE * progress)
    else:
        height = torch.exp(SCALE * (progress - 1))
    return height * (1 - 1 / n_classes) + 1 / n_classes

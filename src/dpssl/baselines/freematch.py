"""FreeMatch (Wang et al., ICLR 2023): FixMatch with thresholds and a class balance that training itself estimates.

    τ  <- m τ  + (1-m) mean max q           p̃ <- m p̃ + (1-m) mean q           h̃ <- m h̃ + (1-m) Hist(argmax q)
    τ(c) = clamp(τ) p̃(c) / max p̃                 self-adaptive thresholds; all three start at 1/C
    L = H(y, p(weak x_l)) + λ_u 1(max q ≥ τ(ŷ)) H(ŷ, p(strong x_u)) + w_f L_f,      q = p(weak x_u), ŷ = argmax q
    L_f = -H(SumNorm(p̃ / h̃), SumNorm(p̄ / h̄))      self-adaptive fairness

p̄ and h̄ are mean and histogram of the strong predictions that pass the threshold. m = .999 is the paper's. w_f = .001 is
the authors' configuration of CIFAR-10 with 40 labels (in their library, USB); the paper's text names .05. τ is free
but on SVHN, where `dpssl paper` keeps it within .9 and .95, FreeMatch's range for that set (USB has the upper limit).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.baselines.system import Batch, Learner, MethodSettings, System, Task
from dpssl.config import option
from dpssl.training.fixmatch import fixmatch_loss
from dpssl.training.self_adaptive import SelfAdaptive
from dpssl.training.step import LossAndMetrics


class FreeMatch(System):
    @dataclass(frozen=True)
    class Settings(MethodSettings):
        decay: float = option(0.999, "of the running threshold, mean prediction and label histogram", least=0, most=1)
        fairness_weight: float = option(0.001, "weight of the fairness loss, w_f", least=0)
        unlabeled_weight: float = option(1.0, "weight of the unlabelled loss", least=0)
        least_threshold: float = option(0.0, "lower limit of the running threshold; .9 on SVHN", least=0, most=1)
        most_threshold: float = option(1.0, "upper limit of the running threshold; .95 on SVHN", least=0, most=1)

        def __post_init__(self) -> None:
            super().__post_init__()
            self.check_order("least_threshold", "most_threshold")

    def __init__(self, settings: "FreeMatch.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.settings = settings
        limits = settings.least_threshold, settings.most_threshold
        self.adaptive = SelfAdaptive(task.n_classes, settings.decay, limits)

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        labeled, strong, weak = learner.logits(
            learner.weak(batch.labeled), learner.strong(batch.unlabeled), learner.weak(batch.unlabeled), n_targets=1
        )
        supervised = F.cross_entropy(labeled, batch.labels)
        targets = torch.softmax(weak, -1)
        self.adaptive.adapt(targets)
        unsupervised, sure = fixmatch_loss(targets, strong, self.adaptive.thresholds()[targets.argmax(-1)])
        fairness = self.adaptive.fairness_loss(torch.softmax(strong, -1), sure)
        settings = self.settings
        loss = supervised + settings.unlabeled_weight * unsupervised.mean() + settings.fairness_weight * fairness
        return loss, {
            "labeled_loss": supervised,
            "unlabeled_loss": unsupervised.mean(),
            "fairness_loss": fairness,
            "pseudo_label_rate": sure.float().mean(),
        }

    def trusts(self, probabilities: Tensor) -> Tensor:
        return self.adaptive.trusts(probabilities)

"""FreeMatch (Wang et al., ICLR 2023): FixMatch with thresholds and a class balance that training itself estimates.

    τ  <- m τ  + (1-m) mean max q           p̃ <- m p̃ + (1-m) mean q           h̃ <- m h̃ + (1-m) Hist(argmax q)
    τ(c) = τ p̃(c) / max p̃                                                        (Eq. 5-8; all three start at 1/C)
    L = H(y, p(weak x_l)) + λ_u 1(max q ≥ τ(ŷ)) H(ŷ, p(strong x_u)) + w_f L_f,      q = p(weak x_u), ŷ = argmax q
    L_f = -H(SumNorm(p̃ / h̃), SumNorm(p̄ / h̄))                                      (Eq. 9-11)

p̄ and h̄ are mean and histogram of the strong predictions that pass the threshold. m = .999 is the paper's. w_f = .001 is
the authors' configuration of CIFAR-10 with 40 labels (in their library, USB); the paper's text names .05.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dpssl.baselines.system import Batch, Learner, MethodSettings, System, Task
from dpssl.config import option
from dpssl.training.fixmatch import fixmatch_loss
from dpssl.training.step import LossAndMetrics

TINY = 1e-12


class FreeMatch(System):
    threshold: Tensor
    mean_prediction: Tensor
    label_histogram: Tensor

    @dataclass(frozen=True)
    class Settings(MethodSettings):
        decay: float = option(0.999, "of the running threshold, mean prediction and label histogram", least=0, most=1)
        fairness_weight: float = option(0.001, "weight of the fairness loss, w_f", least=0)
        unlabeled_weight: float = option(1.0, "weight of the unlabelled loss", least=0)

    def __init__(self, settings: "FreeMatch.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.settings = settings
        uniform = torch.full((task.n_classes,), 1 / task.n_classes)
        self.register_buffer("threshold", uniform[0].clone())
        self.register_buffer("mean_prediction", uniform.clone())
        self.register_buffer("label_histogram", uniform.clone())

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        labeled, weak, strong = learner.logits(
            learner.weak(batch.labeled), learner.weak(batch.unlabeled), learner.strong(batch.unlabeled)
        )
        supervised = F.cross_entropy(labeled, batch.labels)
        targets = torch.softmax(weak.detach(), -1)
        self.adapt(targets)
        unsupervised, sure = fixmatch_loss(targets, strong, self.thresholds()[targets.argmax(-1)])
        fairness = fairness_loss(strong, sure, self.mean_prediction, self.label_histogram)
        settings = self.settings
        loss = supervised + settings.unlabeled_weight * unsupervised.mean() + settings.fairness_weight * fairness
        return loss, {
            "labeled_loss": supervised,
            "unlabeled_loss": unsupervised.mean(),
            "fairness_loss": fairness,
            "pseudo_label_rate": sure.float().mean(),
        }

    @torch.no_grad()
    def adapt(self, probabilities: Tensor) -> None:
        """Eq. 5, 6 and the histogram of Eq. 9, from the weak views' probabilities (B, C)."""
        confidence, labels = probabilities.max(-1)
        share = 1 - self.settings.decay
        self.threshold.lerp_(confidence.mean(), share)
        self.mean_prediction.lerp_(probabilities.mean(0), share)
        self.label_histogram.lerp_(class_shares(labels, torch.ones_like(confidence), self.task.n_classes), share)

    def thresholds(self) -> Tensor:
        """τ(c), (C,)."""
        return self.threshold * self.mean_prediction / self.mean_prediction.max()

    def trusts(self, probabilities: Tensor) -> Tensor:
        confidence, label = probabilities.max(-1)
        return confidence >= self.thresholds()[label]


def fairness_loss(strong_logits: Tensor, sure: Tensor, mean_prediction: Tensor, label_histogram: Tensor) -> Tensor:
    """L_f (Eq. 11) of strong logits (B, C), of which the rows `sure` (B,) count; 0 where none does.

    Minimising -H(target, ours) drives predictions apart where one class takes too much. A class of which the
    histogram is empty is left out of its ratio, as in the authors' code.
    """
    probabilities = torch.softmax(strong_logits, -1)
    weight = sure.to(probabilities)
    mean = (probabilities * weight[:, None]).sum(0) / weight.sum().clamp_min(1)
    ours = sum_normalized(ratio(mean, class_shares(probabilities.argmax(-1), weight, len(mean))))
    target = sum_normalized(ratio(mean_prediction, label_histogram))
    return (target * (ours + TINY).log()).sum() * sure.any()


def class_shares(labels: Tensor, weight: Tensor, n_classes: int) -> Tensor:
    """Histogram (C,) of labels (B,), each counted by its weight (B,), as shares."""
    counts = torch.zeros(n_classes, device=weight.device, dtype=weight.dtype)
    return counts.scatter_add(0, labels, weight) / weight.sum().clamp_min(1)


def ratio(x: Tensor, by: Tensor) -> Tensor:
    """x / by, and 0 where `by` is 0."""
    return torch.where(by > 0, x / by.clamp_min(TINY), 0.0)


def sum_normalized(x: Tensor) -> Tensor:
    return x / x.sum().clamp_min(TINY)

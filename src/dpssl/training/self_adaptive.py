"""FreeMatch's thresholds and class balance, which training itself estimates (Wang et al., ICLR 2023).

    τ  <- m τ  + (1-m) mean max q           p̃ <- m p̃ + (1-m) mean q           h̃ <- m h̃ + (1-m) Hist(argmax q)
    τ(c) = clamp(τ) p̃(c) / max p̃                 self-adaptive thresholds; all three start at 1/C,
                                                      or with probabilities known before
    τ(c) = clamp(τ) ã(c) / max ã                 in its place where they follow the `confidence`, not the `shares`:
                                                      ã = s̃ / h̃,  s̃(c) <- m s̃(c) + (1-m) mean 1(argmax q = c) max q
    L_f = -H(SumNorm(p̃ / h̃), SumNorm(p̄ / h̄))      self-adaptive fairness

q are the probabilities of the weak views; p̄ and h̄ are mean and histogram of the strong views' probabilities that pass
the threshold. τ is limited where it is used, to 0 and 1 unless given: FreeMatch has a narrower range for SVHN.

p̃(c) / max p̃ takes a rare class for one that is hard to learn: with SVHN's shares the threshold of the 9s is a third of
that of the 1s, whatever the limits. ã, the mean certainty of what is predicted as c, does not depend on the shares.
"""

import torch
from torch import Tensor, nn

from dpssl.training.distributed import average

TINY = 1e-12
SHARES, CONFIDENCE = "shares", "confidence"  # what the thresholds of classes follow


class SelfAdaptive(nn.Module):
    """τ, p̃ and h̃ of C classes with decay m, as buffers changed in place; τ counts as at least and at most `limits`.

    Where the thresholds `follow` the confidence, s̃ is a buffer too.
    """

    threshold: Tensor
    mean_prediction: Tensor
    label_histogram: Tensor
    certainty_sum: Tensor

    def __init__(
        self, n_classes: int, decay: float, limits: tuple[float, float] = (0.0, 1.0), follow: str = SHARES
    ) -> None:
        super().__init__()
        self.decay, self.limits, self.follow = decay, limits, follow
        uniform = torch.full((n_classes,), 1 / n_classes)
        self.register_buffer("threshold", uniform[0].clone())
        self.register_buffer("mean_prediction", uniform.clone())
        self.register_buffer("label_histogram", uniform.clone())
        if follow == CONFIDENCE:  # no buffer otherwise: checkpoints from before have none
            self.register_buffer("certainty_sum", uniform / n_classes)

    def begin_with(self, probabilities: Tensor) -> None:
        """τ, p̃, h̃ and s̃ are those of probabilities (n, C) that are known before training, in place of 1/C."""
        self._move(probabilities, 1.0)

    def adapt(self, probabilities: Tensor) -> None:
        """τ, p̃, h̃ and s̃ follow the weak views' probabilities (B, C)."""
        self._move(probabilities, 1 - self.decay)

    @torch.no_grad()
    def _move(self, probabilities: Tensor, share: float) -> None:
        """This share of the way to what the probabilities say."""
        confidence, labels = probabilities.max(-1)
        self.threshold.lerp_(average(confidence.mean()), share)
        self.mean_prediction.lerp_(average(probabilities.mean(0)), share)
        n_classes = len(self.label_histogram)
        shares = class_shares(labels, torch.ones_like(confidence), n_classes)
        self.label_histogram.lerp_(average(shares), share)
        if self.follow == CONFIDENCE:
            certainty = torch.zeros_like(self.certainty_sum).scatter_add(0, labels, confidence) / len(labels)
            self.certainty_sum.lerp_(average(certainty), share)

    def thresholds(self) -> Tensor:
        """τ(c), (C,)."""
        scale = self._class_scale()
        return self.threshold.clamp(*self.limits) * scale / scale.max()

    def _class_scale(self) -> Tensor:
        """What is lower for a class that is to have a lower threshold, (C,): p̃ or ã."""
        if self.follow == CONFIDENCE:
            return ratio(self.certainty_sum, self.label_histogram)
        return self.mean_prediction

    def trusts(self, probabilities: Tensor) -> Tensor:
        """Which rows of (B, C) pass the threshold of their most probable class, (B,)."""
        confidence, label = probabilities.max(-1)
        return confidence >= self.thresholds()[label]

    def fairness_loss(self, strong_probabilities: Tensor, sure: Tensor) -> Tensor:
        """L_f of the strong views' probabilities (B, C), of which the rows `sure` (B,) count."""
        return fairness_loss(strong_probabilities, sure, self.mean_prediction, self.label_histogram)


def fairness_loss(probabilities: Tensor, sure: Tensor, mean_prediction: Tensor, label_histogram: Tensor) -> Tensor:
    """L_f of the strong views' probabilities (B, C), of which the rows `sure` (B,) count; 0 where none does.

    Minimising -H(target, ours) drives predictions apart where one class takes too much. A class of which the
    histogram is empty is left out of its ratio, as in the authors' code.
    """
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

"""Supervised learning on the given labels alone: the floor that a semi-supervised method has to beat.

L = H(y, p(weak view))
"""

from torch.nn import functional as F

from dpssl.baselines.system import Batch, Learner, System
from dpssl.training.step import LossAndMetrics


class Supervised(System):
    """Cross-entropy on weak views of the labelled images; the unlabelled ones are not looked at."""

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        (logits,) = learner.logits(learner.weak(batch.labeled))
        supervised = F.cross_entropy(logits, batch.labels)
        return supervised, {"labeled_loss": supervised}

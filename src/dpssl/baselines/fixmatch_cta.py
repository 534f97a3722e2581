"""FixMatch (Sohn et al., NeurIPS 2020) with CTAugment as its strong view.

    L = H(y, p(weak x_l)) + λ_u 1(max p(weak x_u) ≥ τ) H(argmax p(weak x_u), p(CTAugment x_u))

A probe view of each labelled image goes along in the joint forward pass and tells CTAugment which strengths the network
still recognises; it is not trained on. Filled in: the authors probe with the averaged weights in evaluation mode, in a
pass of its own. τ = .95, λ_u = 1, depth 2, threshold .8 and decay .99 are the authors'.
"""

from dataclasses import dataclass

import torch

from dpssl.baselines.ctaugment import CTAugment
from dpssl.baselines.fixmatch import FixMatch
from dpssl.baselines.system import Batch, Learner, Task
from dpssl.config import option
from dpssl.training.step import LossAndMetrics


class FixMatchCTA(FixMatch):
    @dataclass(frozen=True)
    class Settings(FixMatch.Settings):
        cta_depth: int = option(2, "operations of a strong view", least=0)
        cta_threshold: float = option(0.8, "least rate of a strength, as a share of its best one's", least=0, most=1)
        cta_decay: float = option(0.99, "of the running rates", least=0, most=1)

    def __init__(self, settings: "FixMatchCTA.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.cta = CTAugment(task.strong_ops, settings.cta_depth, settings.cta_threshold, settings.cta_decay)

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        cta, generator = self.cta, learner.generator
        policy = cta.draw(len(batch.unlabeled), generator)
        probe = cta.draw(len(batch.labels), generator, probe=True)
        labeled, strong, weak, probed = learner.logits(
            learner.weak(batch.labeled),
            learner.strong(batch.unlabeled, cta.turns(batch.unlabeled, policy)),
            learner.weak(batch.unlabeled),
            learner.strong(batch.labeled, cta.turns(batch.labeled, probe)),
            n_targets=2,
        )
        recognized = torch.softmax(probed, -1).gather(1, batch.labels[:, None]).squeeze(1)
        cta.learn(probe, recognized)
        loss, metrics = self.objective(labeled, batch.labels, strong, weak)
        return loss, {**metrics, "probe_accuracy": recognized.mean()}

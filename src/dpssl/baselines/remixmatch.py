"""ReMixMatch (Berthelot et al., ICLR 2020).

    q = sharpen(normalise(p(weak x_u) · p(y) / p̃), T)       distribution alignment: p̃ is the running mean of p(weak x_u)
    X', U' = mixup of the labelled strong views, K strong views and the weak view of x_u, each of x_u with target q
    L = H(y', p(X')) + r(t) [λ_U H(q', p(U')) + λ_U1 H(q, p(first strong view))] + λ_r H(turn, p_r(turned strong view))

The weak view's prediction anchors all strong ones (augmentation anchoring); the last term guesses by which of four
right angles a strong view was turned. λ_U = 1.5, λ_U1 = λ_r = .5, T = .5, α = .75, K = 8 and CTAugment are the paper's
(Sec. 4); r(t) rises over 16,384 steps, or all of fewer, and p̃ is a mean over 128 batches, as in the authors' code.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpssl.baselines.ctaugment import CTAugment
from dpssl.baselines.parts import Ramp, mix_up, one_hot, sharpen, soft_cross_entropy
from dpssl.baselines.system import Batch, Learner, MethodSettings, System, Task
from dpssl.config import option
from dpssl.errors import InputError
from dpssl.training.step import LossAndMetrics

N_TURNS = 4  # by 0, 90, 180 and 270 degrees
ALIGNMENT_FLOOR = 1e-6  # under both sides of p(y) / p̃, as in the authors' code


class ReMixMatch(System):
    mean_prediction: Tensor

    @dataclass(frozen=True)
    class Settings(MethodSettings):
        n_strong: int = option(8, "strong views of an unlabelled image, K", least=1)
        temperature: float = option(0.5, "of the sharpening; 1 = none", least=1e-3)
        alpha: float = option(0.75, "of mixup's Beta distribution; 0 = nothing is mixed", least=0)
        unlabeled_weight: float = option(1.5, "weight of the mixed unlabelled views, at full height", least=0)
        premix_weight: float = option(0.5, "weight of a strong view that is not mixed, at full height", least=0)
        rotation_weight: float = option(0.5, "weight of guessing the turn of a strong view; 0 = off", least=0)
        ramp_steps: int = option(16384, "steps over which the first two weights rise, or all of fewer", least=0)
        alignment: bool = option(True, "align predictions with the class balance of the labels")
        alignment_decay: float = option(1 - 1 / 128, "of the running mean prediction that is aligned", least=0, most=1)
        cta_depth: int = option(2, "operations of a strong view", least=0)
        cta_threshold: float = option(0.8, "least rate of a strength, as a share of its best one's", least=0, most=1)
        cta_decay: float = option(0.99, "of the running rates", least=0, most=1)

    def __init__(self, settings: "ReMixMatch.Settings", task: Task) -> None:
        super().__init__(settings, task)
        self.settings, self.ramp = settings, Ramp(min(settings.ramp_steps, task.n_steps))
        self.cta = CTAugment(task.strong_ops, settings.cta_depth, settings.cta_threshold, settings.cta_decay)
        self.register_buffer("class_balance", task.class_balance.clone())
        self.register_buffer("mean_prediction", torch.full((task.n_classes,), 1 / task.n_classes))
        height, width = task.image_size
        if settings.rotation_weight and height != width:
            raise InputError(
                f"--method remixmatch: turns images by right angles, but they are {width}x{height}; make them square "
                "or give --method-settings rotation_weight=0"
            )
        self.turn_head = nn.Linear(task.n_features, N_TURNS)

    def start(self, generator: torch.Generator) -> None:
        nn.init.xavier_normal_(self.turn_head.weight, generator=generator)
        nn.init.zeros_(self.turn_head.bias)

    def loss(self, batch: Batch, learner: Learner) -> LossAndMetrics:
        settings, cta, generator = self.settings, self.cta, learner.generator
        n_labeled, n_unlabeled = len(batch.labels), len(batch.unlabeled)
        probe = cta.draw(n_labeled, generator, probe=True)
        weak = learner.weak(batch.unlabeled)
        probe_views = learner.strong(batch.labeled, cta.turns(batch.labeled, probe))
        labeled = self._strong(batch.labeled, learner)
        strong = self._strong(batch.unlabeled.repeat(settings.n_strong, 1, 1, 1), learner)  # view after view
        guessed, probed = torch.split(learner.guess_logits(torch.cat([weak, probe_views])), [n_unlabeled, n_labeled])
        target = self.guess(torch.softmax(guessed, -1))
        recognized = torch.softmax(probed, -1).gather(1, batch.labels[:, None]).squeeze(1)
        cta.learn(probe, recognized)

        inputs = learner.inputs(torch.cat([labeled, strong, weak]))
        targets = torch.cat([one_hot(batch.labels, self.task.n_classes), target.repeat(settings.n_strong + 1, 1)])
        mixed, mixed_targets = mix_up(inputs, targets, settings.alpha, generator)
        first = strong[:n_unlabeled]
        turned, turn = turn_images(first) if settings.rotation_weight else (first[:0], batch.labels[:0])
        features = learner.features_of(torch.cat([mixed, learner.inputs(torch.cat([first, turned]))]))
        of_mixed, of_first, of_turned = torch.split(features, [len(mixed), n_unlabeled, len(turned)])

        entropy = soft_cross_entropy(learner.head(of_mixed), mixed_targets)
        supervised, unsupervised = entropy[:n_labeled].mean(), entropy[n_labeled:].mean()
        premix = soft_cross_entropy(learner.head(of_first), target).mean()
        weighted = settings.unlabeled_weight * unsupervised + settings.premix_weight * premix
        loss = supervised + self.ramp() * weighted
        metrics = {
            "labeled_loss": supervised,
            "unlabeled_loss": unsupervised,
            "premix_loss": premix,
            "probe_accuracy": recognized.mean(),
        }
        if settings.rotation_weight:
            metrics["rotation_loss"] = F.cross_entropy(self.turn_head(of_turned), turn)
            loss = loss + settings.rotation_weight * metrics["rotation_loss"]
        return loss, metrics

    def guess(self, probabilities: Tensor) -> Tensor:
        """q (B, C) from the weak views' probabilities (B, C), which then enter the running mean."""
        aligned = probabilities
        if self.settings.alignment:
            ratio = (self.get_buffer("class_balance") + ALIGNMENT_FLOOR) / (self.mean_prediction + ALIGNMENT_FLOOR)
            aligned = probabilities * ratio
            aligned = aligned / aligned.sum(-1, keepdim=True)
        self.mean_prediction.lerp_(probabilities.mean(0), 1 - self.settings.alignment_decay)
        return sharpen(aligned, self.settings.temperature)

    def _strong(self, images: Tensor, learner: Learner) -> Tensor:
        """A view of each to train on, by the strengths that CTAugment has learnt."""
        return learner.strong(images, self.cta.turns(images, self.cta.draw(len(images), learner.generator)))


def turn_images(images: Tensor) -> tuple[Tensor, Tensor]:
    """Every fourth square image by 0, by 90, by 180, by 270 degrees: (B, channels, H, W), and their turns (B,)."""
    turn = torch.arange(len(images), device=images.device) % N_TURNS
    turned = torch.cat([torch.rot90(images[k::N_TURNS], k, (2, 3)) for k in range(N_TURNS)])
    return turned, torch.cat([turn[k::N_TURNS] for k in range(N_TURNS)])

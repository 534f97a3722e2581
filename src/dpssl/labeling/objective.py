"""The two phases of Eq. 7 as objectives over one joint forward pass.

Phase A trains on Eq. 4 alone and counts winners; phase B trains on Eq. 5 + Eq. 6 with the specialised sets fixed. Both
are modules so that what they remember between steps (winner counts, running predictions) is saved with a checkpoint.
"""

import torch
from torch import Tensor, nn

from dpssl.config import LabelingConfig
from dpssl.labeling.losses import (
    consensus,
    consensus_loss,
    labeled_loss,
    mcl_loss,
    unlabeled_loss,
)
from dpssl.labeling.specialties import WinnerCount
from dpssl.nets.lf_heads import LFNetwork
from dpssl.training.curriculum import Curriculum
from dpssl.training.distributed import average
from dpssl.training.self_adaptive import SelfAdaptive
from dpssl.training.step import LossAndMetrics
from dpssl.training.surest import among_surest, share_learnt_from

ADAPTIVE_DECAY = 0.999  # FreeMatch's


class MultipleChoice(nn.Module):
    """Phase A: mu_l^MCL * Eq. 4 on labelled images."""

    def __init__(self, n_lfs: int, n_classes: int, n_specialists: int, weight: float) -> None:
        super().__init__()
        self.winners = WinnerCount(n_lfs, n_classes)
        self.n_specialists, self.weight = n_specialists, weight

    def loss(self, lf_logits: Tensor, labels: Tensor) -> LossAndMetrics:
        n_classes = self.winners.wins.shape[0]
        loss, winners = mcl_loss(lf_logits[..., :n_classes], labels, self.n_specialists)
        self.winners.add(winners, labels)
        return self.weight * loss.mean(), {}


class SemiSupervised(nn.Module):
    """Phase B: mu_l * Eq. 5 + mu_u * Eq. 6."""

    mean_prediction: Tensor
    steps_seen: Tensor

    def __init__(self, network: LFNetwork, settings: LabelingConfig, class_balance: Tensor) -> None:
        super().__init__()
        self.settings = settings
        self.heads_first = min(settings.heads_first, settings.steps // 2)
        self.propagation_steps = min(settings.propagation_steps, settings.steps // 2)
        self.register_buffer("specialties", network.specialties.clone())
        outcomes = outcome_prior(network.specialties, class_balance, network.abstains)  # (K, C + 1)
        self.register_buffer("prior", class_balance if settings.pseudo_labels == "consensus" else outcomes)
        self.register_buffer("mean_prediction", self.get_buffer("prior").clone())
        self.register_buffer("steps_seen", torch.zeros(()))
        limits = settings.least_threshold, settings.most_threshold
        self.adaptive = SelfAdaptive(network.n_classes, ADAPTIVE_DECAY, limits, settings.thresholds_follow)
        self.curriculum = Curriculum(self.get_buffer("prior"), settings.confidence_threshold)

    def loss(
        self,
        labeled_logits: Tensor,
        labels: Tensor,
        weak_logits: Tensor,
        strong_logits: Tensor,
        propagated: Tensor | None = None,
    ) -> LossAndMetrics:
        """Masked logits of p̄_k, (B, K, C + 1), for labelled weak, unlabelled weak and unlabelled strong views.

        `propagated` (B, C) are probabilities of the unlabelled images that a consensus begins with.
        """
        settings = self.settings
        supervised = labeled_loss(
            labeled_logits, labels, self.get_buffer("specialties"), settings.abstain_weight
        ).mean()
        targets = torch.softmax(weak_logits.detach(), -1)
        if settings.pseudo_labels == "consensus":
            unsupervised, metrics = self._from_consensus(targets, strong_logits, propagated)
        else:
            unsupervised, metrics = self._from_own(targets, weak_logits, strong_logits)
        weight = self._warmed_up(0 if propagated is not None else self.heads_first)
        loss = settings.labeled_weight * supervised + settings.unlabeled_weight * weight * unsupervised
        self.steps_seen.add_(1)
        return loss, {"labeled_loss": supervised, "unlabeled_loss": unsupervised, **metrics}

    def _from_own(self, targets: Tensor, weak_logits: Tensor, strong_logits: Tensor) -> LossAndMetrics:
        """Eq. 6: every LF learns from its own sure predictions."""
        settings, specialties = self.settings, self.get_buffer("specialties")
        if settings.alignment:
            targets = self._align(targets)
        loss, pseudo_labels, sure = unlabeled_loss(
            targets,
            weak_logits,
            strong_logits,
            self._threshold(targets),
            settings.abstain_view,
            settings.abstain_weight,
        )
        speaks = pseudo_labels < specialties.shape[1]  # (B, K)
        return loss.mean(), {
            "pseudo_label_rate": sure.float().mean(),
            "speak_rate": (sure & speaks).float().mean(),
            "coverage": speaks.any(1).float().mean(),
        }

    def _from_consensus(self, targets: Tensor, strong_logits: Tensor, propagated: Tensor | None) -> LossAndMetrics:
        """In place of Eq. 6: every LF learns from what all of them together are sure of."""
        settings, specialties = self.settings, self.get_buffer("specialties")
        joint = consensus(targets, specialties)  # (B, C)
        if propagated is not None:
            reached = propagated.sum(-1, keepdim=True)  # 1 or 0
            joint = torch.lerp(joint, propagated, self._propagated_share() * reached)
        if settings.alignment:
            joint = self._align(joint)
        confidence, pseudo_labels = joint.max(-1)
        if settings.adaptive_threshold:
            self.adaptive.adapt(joint)
            sure = self.adaptive.trusts(joint)
        else:
            sure = confidence >= self._threshold(joint)
        if propagated is not None:
            sure = sure & self._propagation_allows(propagated)
        if settings.surest_first:
            share = share_learnt_from(self.steps_seen - self.heads_first, settings.surest_first * settings.steps)
            sure = sure & among_surest(confidence, share)
        loss = consensus_loss(strong_logits, pseudo_labels, sure, specialties, settings.abstain_weight).mean()
        speaks = targets.argmax(-1) < specialties.shape[1]  # (B, K)
        return loss, {
            "pseudo_label_rate": sure.float().mean(),
            "speak_rate": (sure[:, None] & speaks).float().mean(),
            "coverage": speaks.any(1).float().mean(),
        }

    def _threshold(self, probabilities: Tensor) -> Tensor | float:
        """What predictions (B, ..., outcomes) have to reach: one number, or one for each of them (B, ...)."""
        if not self.settings.curriculum_threshold:
            return self.settings.confidence_threshold
        self.curriculum.adapt(probabilities)
        return self.curriculum.thresholds_of(probabilities)

    def backbone_learns(self) -> Tensor:
        """1 once the heads have had their steps, 0 before."""
        return (self.steps_seen >= self.heads_first).to(self.steps_seen)

    def _propagated_share(self) -> Tensor:
        """How much propagated labels count in a consensus: all at first, nothing after `propagation_steps`."""
        return (1 - self.steps_seen / max(1, self.propagation_steps)).clamp(0.0, 1.0)

    def _propagation_allows(self, propagated: Tensor) -> Tensor:
        """(B,) images that may be learnt from: while heads come first only those that a label has reached."""
        return (propagated.sum(-1) > 0) | (self.steps_seen >= self.heads_first)

    def _warmed_up(self, n_without: int) -> Tensor:
        """Share of Eq. 6 that counts: 0 for the first steps `n_without`, then it rises over `unlabeled_warmup` steps.

        Phase A has trained no abstain output, so at first every LF is sure of its own classes everywhere: while heads
        come first they learn from given labels alone, or from propagated ones.
        """
        step = self.steps_seen + 1 - n_without
        return (step / max(1, self.settings.unlabeled_warmup)).clamp(0.0, 1.0)

    @torch.no_grad()
    def _align(self, probabilities: Tensor) -> Tensor:
        """Distribution alignment (ReMixMatch): p * prior / running mean, normalised.

        The consensus is aligned to the class balance, an LF's own predictions to its own prior.
        """
        self.mean_prediction.lerp_(average(probabilities.mean(0)), 1 - self.settings.alignment_decay)
        aligned = probabilities * self.get_buffer("prior") / self.mean_prediction.clamp_min(1e-6)
        return aligned / aligned.sum(-1, keepdim=True).clamp_min(1e-12)


def outcome_prior(specialties: Tensor, class_balance: Tensor, abstains: bool) -> Tensor:
    """How often each LF should say what (K, C + 1): the class balance inside tau_k, the rest to abstain."""
    inside = specialties * class_balance
    rest = 1 - inside.sum(1, keepdim=True)
    return torch.cat([inside, rest if abstains else torch.zeros_like(rest)], 1)

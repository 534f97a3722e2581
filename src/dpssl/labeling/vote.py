"""Votes of the trained labeling functions on every image, and what the network looks like inside.

A vote is the argmax of p̄_k on the un-augmented image, over tau_k and "abstain", without a threshold; its confidence
is that probability. Nothing here sees a label.
"""

from dataclasses import dataclass

import numpy as np
import torch

from dpssl.constants import ABSTAIN
from dpssl.data.batches import ImageBank
from dpssl.nets.lf_heads import LFNetwork
from dpssl.nets.pooling import FeatureTransform, unit_positions, unit_rows
from dpssl.training.distributed import all_rows, my_rows

CHUNK = 1024


@dataclass(frozen=True)
class Votes:
    votes: np.ndarray  # (n, K) int8, or int16 above 127 classes; -1 = abstain
    confidence: np.ndarray  # (n, K) float16, probability of that vote
    specialties: np.ndarray  # (K, C) bool


@torch.no_grad()
def cast_votes(network: LFNetwork, bank: ImageBank) -> Votes:
    """Votes of `network`, in evaluation mode, on all images of `bank`; each process casts its share of them."""
    votes, confidence = [], []
    for images in bank.chunks(CHUNK, *my_rows(len(bank))):
        logits = network.abstain_logits(network(bank.network_input(images)))
        probability, outcome = torch.softmax(logits, -1).max(-1)  # (B, K)
        votes.append(torch.where(outcome == network.n_classes, ABSTAIN, outcome).to(torch.int16).cpu())
        confidence.append(probability.to(torch.float16).cpu())
    kind = np.int8 if network.n_classes <= 127 else np.int16
    return Votes(
        all_rows(torch.cat(votes), len(bank)).numpy().astype(kind),
        all_rows(torch.cat(confidence), len(bank)).numpy(),
        network.specialties.cpu().numpy(),
    )


@torch.no_grad()
def feature_diagnostics(network: LFNetwork, bank: ImageBank, n_images: int = 512) -> dict[str, float]:
    """Is the feature transform alive? Entropy of the assignment as a share of log K, and the mean cosine of two f_k."""
    inputs = bank.network_input(bank.take(torch.arange(min(n_images, len(bank)))))
    lf_features = unit_rows(network.lf_features(inputs))  # (B, K, D)
    n_lfs = lf_features.shape[1]
    if n_lfs < 2:
        return {}
    total = lf_features.sum(1).square().sum(-1)  # sum over all pairs of cosines, the K diagonal ones included
    cosine = ((total - n_lfs) / (n_lfs * (n_lfs - 1))).mean()
    diagnostics = {"feature_cosine": cosine.item()}
    if isinstance(network.pooling, FeatureTransform):
        assignment = network.pooling.assignment(unit_positions(network.backbone(inputs)))
        entropy = -torch.xlogy(assignment, assignment).sum(-1).mean() / np.log(n_lfs)
        diagnostics["assignment_entropy"] = entropy.item()
    return diagnostics

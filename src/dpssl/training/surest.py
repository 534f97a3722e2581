"""Learning from the surest predictions first, and from all of them in the end.

    q(t) = min(1, q0 + (1 - q0) t / T)           share of a batch that is learnt from at step t: its surest images

Thresholds on confidence follow what the network believes of itself, and four labels a class make it believe wrongly: on
features that know the images, nine in ten of the surest 40 % are right where six in ten of all are. So here the share
is fixed, and what it takes to be among them follows. The order is the idea of self-paced learning (Kumar et al.,
NeurIPS 2010) and of curriculum labeling (Cascante-Bonilla et al., AAAI 2021), which trains anew for every share.
"""

import torch
from torch import Tensor

from dpssl.training.distributed import gathered

FIRST_SHARE = 0.05  # q0


def share_learnt_from(step: Tensor, n_steps: float) -> Tensor:
    """q(t) for T = `n_steps`."""
    return (FIRST_SHARE + (1 - FIRST_SHARE) * step / max(1.0, n_steps)).clamp(FIRST_SHARE, 1.0)


@torch.no_grad()
def among_surest(confidence: Tensor, share: Tensor) -> Tensor:
    """Which of the batch's confidences (B,) are in its surest `share`, (B,); of all processes' batches together."""
    everyone = gathered(confidence).flatten()
    n_trusted = (share * len(everyone)).ceil().long().clamp(1, len(everyone))
    least = everyone.sort(descending=True).values.gather(0, n_trusted[None] - 1)
    return confidence >= least

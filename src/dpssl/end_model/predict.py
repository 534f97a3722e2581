"""What a trained end model says of images: class probabilities and features, un-augmented unless asked otherwise.

Where several processes work together, each looks at its share of the images and all of them get every answer.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from dpssl.data.batches import ImageBank
from dpssl.nets.classifier import Classifier
from dpssl.training.distributed import all_rows, my_rows

CHUNK = 1024  # images in memory at a time


@torch.no_grad()
def predict_probabilities(
    network: nn.Module, bank: ImageBank, view: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Class probabilities (n, C) of every image of `bank`, or of the `view` of it that is asked for, on the CPU."""
    return _answers(lambda inputs: torch.softmax(cast(Tensor, network(inputs)), -1), bank, view)


@torch.no_grad()
def embed(network: Classifier, bank: ImageBank) -> Tensor:
    """Pooled features (n, D) of every image, on the CPU."""
    return _answers(network.features, bank)


def _answers(
    ask: Callable[[Tensor], Tensor], bank: ImageBank, view: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    chunks = bank.chunks(CHUNK, *my_rows(len(bank)))
    shown = chunks if view is None else map(view, chunks)
    return all_rows(torch.cat([ask(bank.network_input(images)).cpu() for images in shown]), len(bank))

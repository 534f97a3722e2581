"""What a trained end model says of images: class probabilities and features, un-augmented unless asked otherwise."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from dpssl.data.batches import ImageBank
from dpssl.nets.classifier import Classifier
from dpssl.training.answers import answers


def predict_probabilities(
    network: nn.Module, bank: ImageBank, view: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Class probabilities (n, C) of every image of `bank`, or of the `view` of it that is asked for, on the CPU."""
    return answers(lambda inputs: torch.softmax(cast(Tensor, network(inputs)), -1), bank, view)


def embed(network: Classifier, bank: ImageBank) -> Tensor:
    """Pooled features (n, D) of every image, on the CPU."""
    return answers(network.features, bank)

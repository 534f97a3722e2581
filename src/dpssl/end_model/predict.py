"""What a trained end model says of images: class probabilities and features, un-augmented."""

from typing import cast

import torch
from torch import Tensor, nn

from dpssl.data.batches import ImageBank
from dpssl.nets.classifier import Classifier

CHUNK = 1024  # images in memory at a time


@torch.no_grad()
def predict_probabilities(network: nn.Module, bank: ImageBank) -> Tensor:
    """Class probabilities (n, C) of every image of `bank`, on the CPU."""
    chunks = torch.split(bank.images, CHUNK)
    return torch.cat([torch.softmax(cast(Tensor, network(bank.network_input(x))), -1).cpu() for x in chunks])


@torch.no_grad()
def embed(network: Classifier, bank: ImageBank) -> Tensor:
    """Pooled features (n, D) of every image, on the CPU."""
    return torch.cat([network.features(bank.network_input(x)).cpu() for x in torch.split(bank.images, CHUNK)])

"""How images that only make targets pass through the network beside those that are learnt from.

One joint pass lets all of them share the batch statistics, as in FixMatch; its backward pass goes through the targets'
images too, by way of these statistics. It may leave them out, or they pass apart, with statistics of their own.
"""

import torch
from torch import Tensor, nn

from dpssl.config import LabelingConfig
from dpssl.nets.wide_resnet import WideResNet


def is_one_pass(settings: LabelingConfig) -> bool:
    """Whether all images pass together, and the backward pass goes through all of them."""
    return settings.joint_forward and settings.weak_gradient


def learnt_and_targets(
    backbone: nn.Module, images: Tensor, n_learnt: int, settings: LabelingConfig
) -> tuple[Tensor, Tensor]:
    """Feature maps of the first `n_learnt` images, and those of the others, without a gradient."""
    if settings.joint_forward and isinstance(backbone, WideResNet):
        return backbone.split_forward(images, n_learnt)
    with torch.no_grad():
        targets = backbone(images[n_learnt:])
    return backbone(images[:n_learnt]), targets

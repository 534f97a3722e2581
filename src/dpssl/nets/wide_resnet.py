"""Wide ResNet as FixMatch uses it: pre-activation blocks, leaky ReLU .1, batch norm in every block.

Source of the design and constants: Zagoruyko and Komodakis (2016), with FixMatch's leaky slope, batch-norm epsilon and
activation before the first residual. The network returns its feature map: pooling belongs to the heads (Eq. 3).
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpssl.errors import InputError
from dpssl.nets.fused_resnet import split_pass, train_pass
from dpssl.nets.norm_kernels import channels_fit

LEAKY_SLOPE = 0.1
BN_EPSILON = 1e-3
STEM_CHANNELS = 16


class Block(nn.Module):
    """BN, leaky ReLU, 3x3 convolution, twice, added to the input (or to its projection where the shape changes)."""

    def __init__(self, n_in: int, n_out: int, stride: int, bn_momentum: float, activate_shortcut: bool) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(n_in, eps=BN_EPSILON, momentum=bn_momentum)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out, eps=BN_EPSILON, momentum=bn_momentum)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, padding=1, bias=False)
        same_shape = n_in == n_out and stride == 1
        self.projection = None if same_shape else nn.Conv2d(n_in, n_out, 1, stride, bias=False)
        self.activate_shortcut = activate_shortcut

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.leaky_relu(self.bn1(x), LEAKY_SLOPE)
        shortcut = hidden if self.activate_shortcut else x
        if self.projection is not None:
            shortcut = self.projection(shortcut)
        hidden = self.conv1(hidden)
        residual: Tensor = self.conv2(F.leaky_relu(self.bn2(hidden), LEAKY_SLOPE))
        return shortcut + residual


class WideResNet(nn.Module):
    """Images (B, channels, H, W) -> feature map (B, D, h, w), D = `n_features`.

    Depth is 2 * blocks * stages + stages + 1: 28 with three stages of four blocks, 37 with four (STL-10), 10 with one
    block each.
    """

    def __init__(
        self,
        depth: int = 28,
        width: int = 2,
        strides: tuple[int, ...] = (1, 2, 2),
        n_channels: int = 3,
        bn_momentum: float = 1e-3,
    ) -> None:
        super().__init__()
        n_stages = len(strides)
        if n_stages == 0:
            raise InputError("--strides: name the stride of at least one stage, for example 1 2 2")
        n_blocks, rest = divmod(depth - n_stages - 1, 2 * n_stages)
        if rest or n_blocks < 1 or width < 1:
            fits = ", ".join(str(2 * n * n_stages + n_stages + 1) for n in range(1, 5))
            raise InputError(
                f"--depth {depth} --width {width}: with {n_stages} strides the depth must be one of {fits}, …"
            )
        widths = [STEM_CHANNELS] + [STEM_CHANNELS * width * 2**stage for stage in range(n_stages)]
        self.stem = nn.Conv2d(n_channels, STEM_CHANNELS, 3, 1, padding=1, bias=False)
        blocks = []
        for stage, stride in enumerate(strides):
            for block in range(n_blocks):
                first = block == 0
                n_in = widths[stage] if first else widths[stage + 1]
                blocks.append(Block(n_in, widths[stage + 1], stride if first else 1, bn_momentum, first and stage == 0))
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(widths[-1], eps=BN_EPSILON, momentum=bn_momentum)
        self.n_features = widths[-1]
        self.leaky_slope = LEAKY_SLOPE
        self.fits_kernels = all(map(channels_fit, widths))

    def each_block(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    def scale_free(self) -> tuple[list[Tensor], list[nn.BatchNorm2d]]:
        """Convolutions that may grow by a common factor without changing the network, and the norms that undo it.

        The stem and first convolutions of blocks go straight into a batch norm. Second ones add to the stream, which
        only batch norms read, so they grow together with the first projection; later projections pass the factor on.
        Where the first block adds an activated stream that is not projected, second convolutions have to stay.
        """
        blocks = self.each_block()
        weights = [self.stem.weight, *(block.conv1.weight for block in blocks)]
        norms = [blocks[0].bn1, *(block.bn2 for block in blocks)]
        if blocks[0].projection is not None:
            weights += [blocks[0].projection.weight, *(block.conv2.weight for block in blocks)]
            norms += [*(block.bn1 for block in blocks[1:]), self.bn]
        return weights, norms

    @torch.no_grad()
    def rescale(self, factor: float) -> None:
        """The same network with those convolutions `factor` times as large; running statistics follow.

        A step of gradient descent turns larger weights by less: the learning rate counts as if divided by factor².
        """
        weights, norms = self.scale_free()
        for weight in weights:
            weight.mul_(factor)
        for norm in norms:
            cast(Tensor, norm.running_mean).mul_(factor)
            cast(Tensor, norm.running_var).mul_(factor**2)

    def forward(self, images: Tensor) -> Tensor:
        if self.training and images.is_cuda and self.fits_kernels:
            return train_pass(self, images)
        features: Tensor = self.blocks(self.stem(images))
        return F.leaky_relu(self.bn(features), LEAKY_SLOPE)

    def split_forward(self, images: Tensor, n_learnt: int) -> tuple[Tensor, Tensor]:
        """In training: feature maps of the first `n_learnt` images, and of the others, which have no gradient.

        The others only make targets, and enter the batch statistics: they have no part in the backward pass.
        """
        return split_pass(self, images, n_learnt)


def initialize(network: nn.Module, generator: torch.Generator) -> None:
    """He initialisation (fan out, leaky slope) of every convolution, drawn from `generator`; batch norm at identity."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, a=LEAKY_SLOPE, mode="fan_out", generator=generator)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)

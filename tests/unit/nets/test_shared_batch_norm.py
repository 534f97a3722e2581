"""Batch norm over shares of one batch. Two processes that train together are tested in tests/integration."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dpssl.data.share import WHOLE, Share
from dpssl.nets.fused_resnet import train_pass
from dpssl.nets.shared_batch_norm import SharedBatchNorm, share_batch_statistics
from dpssl.nets.wide_resnet import WideResNet


def shared(layer: nn.BatchNorm2d, size: int, add_up: Callable[[Tensor], Tensor]) -> nn.BatchNorm2d:
    share_batch_statistics(layer, Share(0, size), add_up)
    return layer


def twice_the_same(tensor: Tensor) -> Tensor:
    """The sum over two processes that have the same images; in a table with a row a process, the rows are equal."""
    return tensor[:1].expand_as(tensor).clone() if tensor.ndim == 3 and len(tensor) == 2 else 2 * tensor


def test_batch_norm_stays_torchs_own_in_a_process_alone() -> None:
    layer = nn.BatchNorm2d(2)
    share_batch_statistics(layer, WHOLE, lambda tensor: tensor)
    assert type(layer) is nn.BatchNorm2d


def test_two_shares_with_the_same_images_are_the_batch_with_each_image_twice() -> None:
    """Output, gradients and running statistics, in double precision."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, 4, 5, dtype=torch.float64, generator=generator)
    weights = torch.randn(6, 3, 4, 5, dtype=torch.float64, generator=generator)
    found = []
    for size in (1, 2):
        layer = nn.BatchNorm2d(3, eps=1e-3, momentum=0.1).double()
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([0.5, -2.0, 1.0]))
            layer.bias.copy_(torch.tensor([0.1, 0.2, -0.3]))
        if size == 2:
            shared(layer, 2, twice_the_same)
        leaf = (x if size == 2 else torch.cat([x, x])).clone().requires_grad_()
        out = layer(leaf)
        loss = (out * (weights if size == 2 else torch.cat([weights, weights]))).sum()
        dx, dweight, dbias = torch.autograd.grad(loss, [leaf, layer.weight, layer.bias])
        found.append([out[:6], dx[:6], size * dweight, size * dbias, *layer.buffers(), layer.eval()(x)])
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_fused_pass_shares_statistics_too() -> None:
    """The hand-written training pass of the Wide ResNet, against itself on the batch with each image twice."""
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = []
    for size in (1, 2):
        torch.manual_seed(0)
        network = WideResNet(10, 1, (1, 2, 2), bn_momentum=0.1).double().train()
        if size == 2:
            share_batch_statistics(network, Share(0, 2), twice_the_same)
        loss = train_pass(network, images if size == 2 else torch.cat([images, images])).square().sum()
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        found.append([*(size * gradient for gradient in gradients), *network.buffers()])
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_bfloat16_stays_bfloat16() -> None:
    x = torch.randn(4, 2, 3, 3, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    layer = shared(nn.BatchNorm2d(2), 2, twice_the_same)
    assert isinstance(layer, SharedBatchNorm)
    out = layer(x)
    out.float().square().sum().backward()
    assert out.dtype == torch.bfloat16
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16

"""Batch norm over the whole batch where several processes have a share of it each.

    x̂ = (x - mean) / sqrt(var + eps),  y = weight * x̂ + bias
    dx = weight / sqrt(var + eps) * (dy - mean(dy) - x̂ * mean(dy * x̂))

with every mean over the images of all processes. torch's SyncBatchNorm does the same on GPUs alone; this one also runs
on CPUs, where it is tested, and its two messages a layer can be captured in a CUDA graph.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from dpssl.data.share import Share

PIXELS = (0, 2, 3)  # all axes but the channels


class SharedBatchNorm(nn.BatchNorm2d):
    """nn.BatchNorm2d over equal shares of one batch; `add_up` gives the sum of a tensor over all processes."""

    share: Share
    add_up: Callable[[Tensor], Tensor]

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch.compile would not follow the messages
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        normalized, mean, variance = cast(
            tuple[Tensor, Tensor, Tensor],
            _Normalize.apply(x, self.weight, self.bias, self),  # type: ignore[no-untyped-call]
        )
        with torch.no_grad():
            n = x.numel() // x.shape[1] * self.share.size
            momentum = cast(float, self.momentum)
            cast(Tensor, self.running_mean).lerp_(mean, momentum)
            cast(Tensor, self.running_var).lerp_(variance * (n / (n - 1)), momentum)
            cast(Tensor, self.num_batches_tracked).add_(1)
        return normalized


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, layer: SharedBatchNorm
    ) -> tuple[Tensor, Tensor, Tensor]:
        variance, mean = torch.var_mean(_widen(x), PIXELS, correction=0)
        mean, variance = _of_all(layer, mean, variance)
        inverse_std = (variance + layer.eps).rsqrt()
        ctx.layer = layer
        ctx.save_for_backward(x, weight, mean, inverse_std)
        ctx.mark_non_differentiable(mean, variance)
        normalized = (_widen(x) - _wide(mean)) * _wide(inverse_std * weight) + _wide(bias)
        return normalized.to(x.dtype), mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, inverse_std = ctx.saved_tensors
        dy = _widen(gradients[0])
        normalized = (_widen(x) - _wide(mean)) * _wide(inverse_std)
        sums = torch.stack([dy.sum(PIXELS), (dy * normalized).sum(PIXELS)])  # of this share: the optimiser adds them up
        means = ctx.layer.add_up(sums.clone()) / (x.numel() // x.shape[1] * ctx.layer.share.size)
        dx = _wide(weight * inverse_std) * (dy - _wide(means[0]) - normalized * _wide(means[1]))
        return dx.to(x.dtype), sums[1], sums[0], None


def share_batch_statistics(network: nn.Module, share: Share, add_up: Callable[[Tensor], Tensor]) -> None:
    """Let every batch norm of `network` use the statistics of all processes; does nothing in a process alone."""
    if share.size == 1:
        return
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedBatchNorm  # the same parameters and buffers, another forward pass
            shared = cast(SharedBatchNorm, module)
            shared.share, shared.add_up = share, add_up


def _of_all(layer: SharedBatchNorm, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the batch from those of equal shares, without the cancellation of E[x²] - E[x]²."""
    table = torch.zeros(layer.share.size, 2, len(mean), dtype=mean.dtype, device=mean.device)
    table[layer.share.rank] = torch.stack([mean, variance])
    means, variances = layer.add_up(table).unbind(1)
    overall = means.mean(0)
    return overall, variances.mean(0) + (means - overall).square().mean(0)


def _widen(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _wide(channels: Tensor) -> Tensor:
    return channels.view(1, -1, 1, 1)

"""The training pass of the Wide ResNet, forward and backward by hand: the same mathematics in fewer passes.

On a GPU every tensor between two convolutions is touched by the kernels of nets.norm_kernels alone, where these take
its channels, and narrow convolutions are those of nets.conv_kernels; elsewhere torch's own functions do it. Without a
gradient (torch.no_grad) the same pass keeps nothing. Images of which nothing is learnt may go along for their batch
statistics; they are left out of the backward pass.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpssl.nets import conv_kernels
from dpssl.nets import norm_kernels as kernels
from dpssl.nets.norm_kernels import Norm, as_rows, like
from dpssl.nets.shared_batch_norm import SharedBatchNorm

if TYPE_CHECKING:
    from dpssl.nets.wide_resnet import WideResNet

aten = torch.ops.aten


class _Normed(NamedTuple):
    """What the backward pass needs of one batch norm with its activation: its input rows and the norm."""

    rows: Tensor
    norm: Norm


def train_pass(network: "WideResNet", images: Tensor) -> Tensor:
    """Feature map (B, D, h, w) in training mode: batch statistics, which move the running ones."""
    return split_pass(network, images, len(images))[0]


def split_pass(network: "WideResNet", images: Tensor, n_learnt: int) -> tuple[Tensor, Tensor]:
    """The same of the first `n_learnt` images, and of the others, of which nothing is learnt.

    All of them make the batch statistics. The backward pass takes the first alone: to it every batch norm is one of
    these alone, moved and stretched by constants to what the common one gives. So, as in a pass through all, nothing
    can be gained by moving or stretching all that is learnt.
    """
    if not torch.is_grad_enabled():
        features = _Tape(network, images, keeps=False).forward(images)
        return features[:n_learnt], features[n_learnt:]
    found = _TrainPass.apply(images, n_learnt, network, *network.parameters())  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, Tensor], found)


def uses_library(network: "WideResNet", images: Tensor) -> bool:
    """Whether torch's own batch norm does it: where our kernels do not, unless several processes share a batch."""
    return not (images.is_cuda and network.fits_kernels) and not isinstance(network.bn, SharedBatchNorm)


class _TrainPass(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, images: Tensor, n_learnt: int, network: "WideResNet", *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.tape = _Tape(network, images)
        features = ctx.tape.forward(images)
        learnt, rest = features[:n_learnt], features[n_learnt:]
        ctx.mark_non_differentiable(rest)
        return learnt, rest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, None, *ctx.tape.backward(gradients[0]))


class _Tape:
    """Runs the network forward, remembers what the backward pass needs (if it `keeps`), runs it backward."""

    def __init__(self, network: "WideResNet", images: Tensor, keeps: bool = True) -> None:
        self.network, self.dtype, self.keeps = network, _compute_type(images), keeps
        self.saved: list[Any] = []
        self.in_use: list[Tensor] = []
        self.side_stream: torch.cuda.Stream | None = None
        self.weights = {module: module.weight.to(self.dtype) for module in _convolutions(network)}
        self.slope = network.leaky_slope
        self.by_library = uses_library(network, images)

    # ---------------------------------------------------------------------------------------------------------- forward

    def forward(self, images: Tensor) -> Tensor:
        network = self.network
        images = images.to(self.dtype).contiguous(memory_format=torch.channels_last)
        x, residual = self._convolve(network.stem, images), None
        for block in network.each_block():
            x, hidden = self._norm(block.bn1, x, residual)
            shortcut = hidden if block.activate_shortcut else x
            if block.projection is not None:
                shortcut = self._convolve(block.projection, shortcut)
            _, hidden = self._norm(block.bn2, self._convolve(block.conv1, hidden), None)
            x, residual = shortcut, self._convolve(block.conv2, hidden)
        _, features = self._norm(network.bn, x, residual)
        return features

    def _convolve(self, conv: nn.Conv2d, x: Tensor) -> Tensor:
        self._save(x)
        weight = self.weights[conv]
        if _is_plain(conv) and conv_kernels.fits(x, weight):
            return conv_kernels.convolve(x, weight)
        stride, padding = list(conv.stride), [int(p) for p in conv.padding]
        return cast(Tensor, aten.convolution(x, weight, None, stride, padding, [1, 1], False, [0, 0], 1))

    def _save(self, value: Any) -> None:
        if self.keeps:
            self.saved.append(value)

    def _norm(self, bn: nn.BatchNorm2d, x: Tensor, other: Tensor | None) -> tuple[Tensor, Tensor]:
        """x + other, and its normalised and activated form."""
        if self.by_library:
            return self._norm_by_library(bn, x if other is None else x + other)
        rows, partials = kernels.add_and_sum(as_rows(x), None if other is None else as_rows(other))
        norm = _finished(bn, partials, len(rows), cast(float, bn.momentum))
        cast(Tensor, bn.num_batches_tracked).add_(1)
        self._save(_Normed(rows, norm))
        return like(rows, x), like(kernels.normalize(rows, norm, self.slope), x)

    def _norm_by_library(self, bn: nn.BatchNorm2d, x: Tensor) -> tuple[Tensor, Tensor]:
        running = bn.running_mean, bn.running_var
        y, *statistics = aten.native_batch_norm(x, bn.weight, bn.bias, *running, True, bn.momentum, bn.eps)
        cast(Tensor, bn.num_batches_tracked).add_(1)
        activated = F.leaky_relu(y, self.slope)
        self._save((x, activated, statistics))
        return x, activated

    # --------------------------------------------------------------------------------------------------------- backward

    def backward(self, gradient: Tensor) -> list[Tensor]:
        """Gradients in the order of network.parameters(), from that of the feature maps of the first images.

        Weight gradients are needed last of all, so on a GPU they run beside the chain of input gradients.
        """
        network = self.network
        if gradient.is_cuda:
            self.side_stream = torch.cuda.Stream()
        found: dict[Tensor, Tensor] = {}
        gradient = gradient.to(self.dtype).contiguous(memory_format=torch.channels_last)
        dx = self._norm_back(network.bn, gradient, None, found)
        for block in reversed(network.each_block()):
            dout = dx
            dhidden = self._norm_back(block.bn2, self._convolve_back(block.conv2, dout, found), None, found)
            dhidden = self._convolve_back(block.conv1, dhidden, found)
            dshortcut = dout if block.projection is None else self._convolve_back(block.projection, dout, found)
            if block.activate_shortcut:
                dx = self._norm_back(block.bn1, dhidden + dshortcut, None, found)
            else:
                dx = self._norm_back(block.bn1, dhidden, dshortcut, found)
        self._weight_gradient(network.stem, dx, self.saved.pop()[: len(dx)], found)
        if self.side_stream is not None:
            torch.cuda.current_stream().wait_stream(self.side_stream)
        self.in_use.clear()
        return [found[parameter] for parameter in network.parameters()]

    def _convolve_back(self, conv: nn.Conv2d, dy: Tensor, found: dict[Tensor, Tensor]) -> Tensor:
        x, weight = self.saved.pop()[: len(dy)], self.weights[conv]
        self._weight_gradient(conv, dy, x, found)
        if _is_plain(conv) and conv_kernels.fits(dy, weight.transpose(0, 1)):
            return conv_kernels.input_gradient(dy, weight)
        return cast(Tensor, self._library_gradients(conv, dy, x, [True, False, False])[0])

    def _weight_gradient(self, conv: nn.Conv2d, dy: Tensor, x: Tensor, found: dict[Tensor, Tensor]) -> None:
        if self.side_stream is None:
            found[conv.weight] = self._weight_gradient_now(conv, dy, x)
            return
        self.in_use += [dy, x]  # the allocator must not hand their memory to the main stream before the two join
        self.side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side_stream):
            found[conv.weight] = self._weight_gradient_now(conv, dy, x)

    def _weight_gradient_now(self, conv: nn.Conv2d, dy: Tensor, x: Tensor) -> Tensor:
        if _is_plain(conv) and conv_kernels.fits(x, self.weights[conv]):
            return conv_kernels.weight_gradient(dy, x)
        return cast(Tensor, self._library_gradients(conv, dy, x, [False, True, False])[1])

    def _library_gradients(self, conv: nn.Conv2d, dy: Tensor, x: Tensor, wanted: list[bool]) -> Any:
        stride, padding = list(conv.stride), [int(p) for p in conv.padding]
        return aten.convolution_backward(
            dy, x, self.weights[conv], [0], stride, padding, [1, 1], False, [0, 0], 1, wanted
        )

    def _norm_back(self, bn: nn.BatchNorm2d, dy: Tensor, skip: Tensor | None, found: dict[Tensor, Tensor]) -> Tensor:
        if self.by_library:
            return self._norm_back_by_library(bn, dy, skip, found)
        saved: _Normed = self.saved.pop()
        dy_rows, norm = as_rows(dy), saved.norm
        n_rows = len(dy_rows)
        rows = saved.rows[:n_rows]
        if n_rows < len(saved.rows):
            norm = _norm_of_learnt(bn, rows, norm)
        sums = kernels.sum_gradient(dy_rows, rows, norm, self.slope)
        found[bn.bias] = sums[0]
        found[bn.weight] = sums[1] if norm is saved.norm else _by_common_norm(sums, norm[:2], saved.norm[:2])
        if isinstance(bn, SharedBatchNorm):
            sums, n_rows = bn.add_up(sums.clone()), n_rows * bn.share.size
        skip_rows = None if skip is None else as_rows(skip)
        return like(kernels.input_gradient(dy_rows, rows, norm, sums, n_rows, self.slope, skip_rows), dy)

    def _norm_back_by_library(
        self, bn: nn.BatchNorm2d, dy: Tensor, skip: Tensor | None, found: dict[Tensor, Tensor]
    ) -> Tensor:
        x, activated, common = self.saved.pop()
        learnt, own, scale = x[: len(dy)], common, cast(Tensor, bn.weight)  # own, common: mean and inverse deviation
        if len(dy) < len(x):
            rows = as_rows(learnt).to(common[0].dtype)
            mean = rows.mean(0)
            variance = (rows - mean).square_().mean(0)  # torch.var_mean takes ten times as long on a CPU
            own = mean, (variance + bn.eps).rsqrt()
            scale = bn.weight * (common[1] / own[1])
        dz = aten.leaky_relu_backward(dy, activated[: len(dy)], self.slope, True)
        running = bn.running_mean, bn.running_var
        dx, products, sums = aten.native_batch_norm_backward(
            dz, learnt, scale, *running, *own, True, bn.eps, [True, True, True]
        )
        found[bn.bias] = sums
        found[bn.weight] = products if own is common else _by_common_norm((sums, products), own, common)
        return cast(Tensor, dx if skip is None else dx + skip)


def _finished(bn: nn.BatchNorm2d, partials: Tensor, n_rows: int, momentum: float) -> Norm:
    """The norm of so many rows, and as many of each other process, from their partial sums."""
    if isinstance(bn, SharedBatchNorm):
        partials, n_rows = bn.add_up(partials.sum(0, keepdim=True)), n_rows * bn.share.size
    running = cast(Tensor, bn.running_mean), cast(Tensor, bn.running_var)
    return kernels.finish_statistics(partials, n_rows, bn.weight, bn.bias, *running, momentum, bn.eps)


def _norm_of_learnt(bn: nn.BatchNorm2d, rows: Tensor, common: Norm) -> Norm:
    """The statistics of these rows alone; scale and shift, which say what became of them, are the common ones."""
    own = _finished(bn, kernels.add_and_sum(rows, None)[1], len(rows), momentum=0.0)
    return own._replace(scale=common.scale, shift=common.shift)


def _by_common_norm(sums: Sequence[Tensor] | Tensor, own: tuple[Tensor, ...], common: tuple[Tensor, ...]) -> Tensor:
    """sum(dz x̂) by the common norm (C,), from sum(dz) and sum(dz x̂) by another; both as mean and inverse deviation."""
    return (sums[1] / own[1] + (own[0] - common[0]) * sums[0]) * common[1]


def _is_plain(conv: nn.Conv2d) -> bool:
    """3 x 3, stride 1, padding 1: what nets.conv_kernels computes."""
    return conv.kernel_size == (3, 3) and conv.stride == (1, 1) and conv.padding == (1, 1)


def _convolutions(network: nn.Module) -> Iterator[nn.Conv2d]:
    return (module for module in network.modules() if isinstance(module, nn.Conv2d))


def _compute_type(images: Tensor) -> torch.dtype:
    kind = images.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else images.dtype

"""SGD with Nesterov momentum and an exponential moving average, as a few operations on one vector.

All trainable tensors of a network are views of one flat vector, so a step is six vector operations whatever the number
of layers, a checkpoint is three tensors, and a captured CUDA graph needs no host work: the learning rate is a device
scalar. The update is torch.optim.SGD's (nesterov=True):

    g = gradient + weight_decay * w        m = momentum * m + g
    w = w - lr * (g + momentum * m)        average = d * average + (1 - d) * w

Weight decay acts on convolution and dense weights only, as in FixMatch.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpssl.training.distributed import average


class FlatSGD:
    """Owns the flat `weights` of a network, their `momentum_buffer` and their moving `average`."""

    def __init__(
        self, network: nn.Module, momentum: float, weight_decay: float, ema_decay: float, undecayed: Sequence[str] = ()
    ) -> None:
        named = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
        self.parameters = [parameter for _, parameter in named]
        self.momentum, self.ema_decay = momentum, ema_decay
        self.weights = torch.cat([_as_stored(parameter.detach()).reshape(-1) for parameter in self.parameters])
        self.decay = torch.cat(
            [
                torch.full((parameter.numel(),), weight_decay if _is_decayed(name, parameter, undecayed) else 0.0)
                for name, parameter in named
            ]
        ).to(self.weights)
        self.momentum_buffer = torch.zeros_like(self.weights)
        self.average = self.weights.clone()
        self.learning_rate = torch.zeros((), device=self.weights.device)
        self._point_parameters_at(self.weights)

    def _point_parameters_at(self, flat: Tensor) -> None:
        for parameter, view in zip(self.parameters, self._split(flat), strict=True):
            parameter.data = view

    def _split(self, flat: Tensor) -> list[Tensor]:
        """`flat` as tensors of the parameters' shapes; convolutions lie channels-last, as the GPU wants them."""
        views, start = [], 0
        for parameter in self.parameters:
            piece = flat[start : start + parameter.numel()]
            views.append(_from_stored(piece, parameter.shape))
            start += parameter.numel()
        return views

    def use_average(self) -> None:
        """Let the network's parameters be the averaged weights (for voting and testing)."""
        self._point_parameters_at(self.average)

    def use_weights(self) -> None:
        """Let the network's parameters be the trained weights again."""
        self._point_parameters_at(self.weights)

    def averaged(self, network: nn.Module) -> dict[str, Tensor]:
        """The averaged weights by the names that `network`, which has some of the parameters, calls them."""
        names = {id(parameter): name for name, parameter in network.named_parameters()}
        views = zip(self.parameters, self._split(self.average), strict=True)
        return {names[id(parameter)]: view for parameter, view in views if id(parameter) in names}

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """One update from gradients in the order of `parameters`, each process' for its share of the batch."""
        gradient = average(torch.cat([_as_stored(piece).reshape(-1) for piece in gradients]))
        gradient.addcmul_(self.weights, self.decay)
        self.momentum_buffer.mul_(self.momentum).add_(gradient)
        gradient.add_(self.momentum_buffer, alpha=self.momentum)
        self.weights.sub_(gradient.mul_(self.learning_rate))
        self.average.lerp_(self.weights, 1 - self.ema_decay)

    def state(self) -> dict[str, Tensor]:
        return {"weights": self.weights, "momentum": self.momentum_buffer, "average": self.average}


def cosine_learning_rate(step: float, n_steps: int, start: float, final_fraction: float = 0.0) -> float:
    """lr(step) = start * cos(a * step / n_steps), with the angle a chosen so that lr(n_steps) = final_fraction * start.

    FixMatch's cos(7 pi / 16 * step / n_steps) is final_fraction = cos(7 pi / 16) = .195; 0 decays to zero.
    """
    return start * math.cos(math.acos(final_fraction) * min(1.0, step / max(1, n_steps)))


def _is_decayed(name: str, parameter: nn.Parameter, undecayed: Sequence[str]) -> bool:
    return parameter.ndim >= 2 and not any(name.endswith(suffix) for suffix in undecayed)


def _as_stored(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1) if x.ndim == 4 else x


def _from_stored(flat: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) != 4:
        return flat.view(shape)
    n_out, n_in, height, width = shape
    return flat.view(n_out, height, width, n_in).permute(0, 3, 1, 2)

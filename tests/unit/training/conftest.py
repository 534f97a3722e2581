from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dpssl.training.optim import FlatSGD
from dpssl.training.step import TrainState, TrainStep


@pytest.fixture
def make_step() -> Callable[..., TrainStep]:
    """`make_step(seed)`: a network with batch norm whose step draws its own data; `make_step(loss=nan)` breaks it."""

    def make(seed: int = 0, loss: float | None = None) -> TrainStep:
        weights = torch.Generator().manual_seed(seed)
        network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(generator=weights)
        generator = torch.Generator().manual_seed(seed)
        state = TrainState(FlatSGD(network, 0.9, 0.01, 0.9), {"network": network}, generator)

        def compute() -> tuple[Tensor, dict[str, Tensor]]:
            value = network(torch.randn(5, 1, 4, 4, generator=generator)).square().mean()
            return (value if loss is None else value * loss), {"twice": 2 * value}

        return TrainStep(compute, state)

    return make

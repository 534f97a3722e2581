"""Running statistics at the end of training: those of the averaged weights, over batches as they were trained on."""

import pytest
import torch
from torch import nn

from dpssl.training.optim import FlatSGD
from dpssl.training.statistics import N_BATCHES, settle_statistics
from dpssl.training.step import TrainState


def test_statistics_are_the_mean_over_batches_of_the_averaged_weights() -> None:
    network = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.BatchNorm2d(1, momentum=0.01)).train()
    optimizer = FlatSGD(network, momentum=0.9, weight_decay=0.0, ema_decay=0.9)
    optimizer.weights.fill_(5.0)
    optimizer.average.fill_(2.0)  # what votes is twice the input, not five times
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(8, 1, 3, 3, generator=generator) for _ in range(N_BATCHES)]
    seen: list[torch.Tensor] = []
    network[1].running_mean.fill_(99.0)  # what was there before counts nothing

    settle_statistics(
        TrainState(optimizer, {"network": network}, generator),
        compute=lambda: network(seen[-1]),
        advance=lambda: seen.append(batches[len(seen)]),
    )

    doubled = 2 * torch.stack(batches)
    assert network[1].running_mean.item() == pytest.approx(doubled.mean().item(), abs=1e-5)
    assert network[1].running_var.item() == pytest.approx(doubled.flatten(1).var(1).mean().item(), rel=1e-4)
    assert network[1].momentum == 0.01
    assert len(seen) == N_BATCHES

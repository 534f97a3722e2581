"""The flat optimiser against torch's own SGD and moving average."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from dpssl.config import Config, with_values
from dpssl.labeling.train import UNDECAYED, build_network
from dpssl.training.optim import FlatSGD, cosine_learning_rate

# Exact in any float format, so that only the update itself is compared.
LEARNING_RATES = [0.25, 0.125, 0.125, 0.0625, 0.03125, 0.015625]
WEIGHT_DECAY = 0.0078125


def small_network(channels_last: bool) -> nn.Sequential:
    generator = torch.Generator().manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.LeakyReLU(), nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(36, 5)
    ).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return network.to(memory_format=torch.channels_last) if channels_last else network


def batch(step: int) -> Tensor:
    return torch.randn(8, 2, 6, 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


def loss_of(network: nn.Module, step: int) -> Tensor:
    return network(batch(step)).square().mean()


@pytest.mark.parametrize("channels_last", [False, True])
def test_equals_torch_sgd_with_nesterov_momentum_and_ema(channels_last: bool) -> None:
    ours, theirs = small_network(channels_last), small_network(channels_last)
    flat = FlatSGD(ours, momentum=0.9, weight_decay=WEIGHT_DECAY, ema_decay=0.75)
    decayed = [parameter for parameter in theirs.parameters() if parameter.ndim > 1]
    rest = [parameter for parameter in theirs.parameters() if parameter.ndim == 1]
    sgd = torch.optim.SGD(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": rest, "weight_decay": 0.0}],
        lr=1.0,
        momentum=0.9,
        nesterov=True,
    )
    average = AveragedModel(theirs, multi_avg_fn=get_ema_multi_avg_fn(0.75))
    average.update_parameters(theirs)  # the first call copies: the average starts at the start
    for step, learning_rate in enumerate(LEARNING_RATES):
        flat.learning_rate.fill_(learning_rate)
        flat.step(torch.autograd.grad(loss_of(ours, step), flat.parameters))
        for group in sgd.param_groups:
            group["lr"] = learning_rate
        sgd.zero_grad()
        loss_of(theirs, step).backward()
        sgd.step()
        average.update_parameters(theirs)
        for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, reference, rtol=1e-12, atol=1e-13)
    flat.use_average()
    for mine, reference in zip(ours.parameters(), average.module.parameters(), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-12, atol=1e-13)
    flat.use_weights()
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-12, atol=1e-13)


def test_taking_over_a_network_does_not_change_it() -> None:
    before, network = small_network(False), small_network(False)
    FlatSGD(network, 0.9, 0.01, 0.9)
    for mine, reference in zip(network.parameters(), before.parameters(), strict=True):
        assert mine.shape == reference.shape
        assert torch.equal(mine, reference)


def test_convolution_weights_lie_channels_last() -> None:
    network = small_network(False)
    FlatSGD(network, 0.9, 0.01, 0.9)
    assert network[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_frozen_parameters_stay_out() -> None:
    network = small_network(False)
    network[0].weight.requires_grad_(False)
    before = network[0].weight.clone()
    flat = FlatSGD(network, 0.9, 0.5, 0.9)
    flat.learning_rate.fill_(0.5)
    flat.step([torch.ones_like(parameter) for parameter in flat.parameters])
    assert torch.equal(network[0].weight, before)


def shrunk_by_decay(network: nn.Module, undecayed: tuple[str, ...]) -> set[str]:
    """Names of the parameters that a step without any gradient changes."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(1.0)
    flat = FlatSGD(network, momentum=0.0, weight_decay=0.5, ema_decay=0.9, undecayed=undecayed)
    flat.learning_rate.fill_(1.0)
    flat.step([torch.zeros_like(parameter) for parameter in flat.parameters])
    return {name for name, parameter in network.named_parameters() if (parameter != 1).any()}


def test_weight_decay_acts_on_convolution_and_dense_weights_only() -> None:
    assert shrunk_by_decay(small_network(False), ()) == {"0.weight", "3.weight", "5.weight"}


def test_weight_decay_of_the_labeling_functions() -> None:
    """The centres, the sharpness and the biases of the batched heads, (K, C + 1), are neither dense nor convolution."""
    network = build_network(with_values(Config(), {"depth": 10, "width": 1, "n_lfs": 4}), n_classes=3, n_channels=1)
    dense = {name for name, module in network.named_modules() if isinstance(module, nn.Conv2d)}
    assert shrunk_by_decay(network, UNDECAYED) == {f"{name}.weight" for name in dense} | {"heads.weight"}


def test_cosine_that_ends_at_zero() -> None:
    values = [cosine_learning_rate(step, 100, 0.03) for step in (0, 50, 100)]
    assert values == pytest.approx([0.03, 0.03 * math.cos(math.pi / 4), 0.0], abs=1e-15)


def test_fixmatch_s_cosine() -> None:
    final = math.cos(7 * math.pi / 16)
    assert final == pytest.approx(0.195, abs=5e-4)
    for step in (0, 1, 250, 999, 1000):
        expected = 0.03 * math.cos(7 * math.pi / 16 * step / 1000)
        assert cosine_learning_rate(step, 1000, 0.03, final) == pytest.approx(expected)


def test_a_final_share_of_one_is_constant_and_the_end_is_not_passed() -> None:
    assert {cosine_learning_rate(step, 10, 0.5, 1.0) for step in range(11)} == {0.5}
    assert cosine_learning_rate(25, 10, 0.5, 0.2) == pytest.approx(0.1)

import pytest
import torch
from torch import nn

from dpssl.errors import InputError
from dpssl.nets.wide_resnet import WideResNet, initialize


def n_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_wrn_28_2_has_the_published_size() -> None:
    classifier_head = 128 * 10 + 10
    assert n_parameters(WideResNet(28, 2)) + classifier_head == pytest.approx(1.47e6, rel=0.005)


def test_wrn_28_8_has_the_published_size() -> None:
    assert n_parameters(WideResNet(28, 8)) == pytest.approx(23.4e6, rel=0.01)


@pytest.mark.parametrize(
    ("depth", "width", "strides", "n_convolutions", "n_features"),
    [
        (10, 1, (1, 2, 2), 7, 64),
        (16, 3, (1, 2, 2), 13, 192),
        (28, 2, (1, 2, 2), 25, 128),
        (37, 2, (1, 2, 2, 2), 33, 256),
    ],
)
def test_depth_counts_convolutions_and_width_channels(
    depth: int, width: int, strides: tuple[int, ...], n_convolutions: int, n_features: int
) -> None:
    """Depth counts the 3x3 convolutions, one projection a stage; the stem is a 3x3 convolution too."""
    network = WideResNet(depth, width, strides)
    kernels = [module.kernel_size for module in network.modules() if isinstance(module, nn.Conv2d)]
    assert kernels.count((3, 3)) == n_convolutions
    assert kernels.count((3, 3)) + len(strides) == depth
    assert kernels.count((1, 1)) in (len(strides) - 1, len(strides))  # the first stage of width 1 keeps its shape
    assert network.n_features == n_features


@pytest.mark.parametrize(
    ("strides", "size", "n_channels", "expected"),
    [
        ((1, 2, 2), 32, 3, (8, 8)),
        ((1, 2, 1), 8, 1, (4, 4)),
        ((1, 1, 1), 8, 1, (8, 8)),
        ((2, 2, 2, 2), 33, 3, (3, 3)),
    ],
)
def test_returns_its_feature_map(
    strides: tuple[int, ...], size: int, n_channels: int, expected: tuple[int, int]
) -> None:
    depth = 3 * len(strides) + 1
    network = WideResNet(depth, 1, strides, n_channels)
    features = network(torch.zeros(2, n_channels, size, size))
    assert features.shape == (2, network.n_features, *expected)


def test_images_need_not_be_square() -> None:
    assert WideResNet(10, 1, n_channels=1)(torch.zeros(1, 1, 8, 16)).shape == (1, 64, 2, 4)


def test_batch_norm_is_fixmatch_s() -> None:
    norms = [module for module in WideResNet(10, 1, bn_momentum=0.01).modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 7  # two a block, one at the end
    assert {norm.eps for norm in norms} == {1e-3}
    assert {norm.momentum for norm in norms} == {0.01}
    assert WideResNet(10, 1).bn.momentum == 1e-3


def test_negative_values_leak_a_tenth() -> None:
    """Batch norm of variance 1 and shift -1 at the end: the feature map of a dark image is -0.1 everywhere."""
    network = WideResNet(10, 1, n_channels=1).eval()
    with torch.no_grad():
        network.bn.bias.fill_(-1.0)
        for weight in (module.weight for module in network.modules() if isinstance(module, nn.Conv2d)):
            weight.zero_()
    torch.testing.assert_close(network(torch.zeros(1, 1, 8, 8)), torch.full((1, 64, 2, 2), -0.1))


def test_convolutions_have_no_bias() -> None:
    assert all(module.bias is None for module in WideResNet(10, 2).modules() if isinstance(module, nn.Conv2d))


@pytest.mark.parametrize(
    ("depth", "strides"), [(11, (1, 2, 2)), (4, (1, 2, 2)), (27, (1, 2, 2)), (28, (1, 2, 2, 2)), (0, (1, 2, 2))]
)
def test_an_impossible_depth_names_those_that_fit(depth: int, strides: tuple[int, ...]) -> None:
    fits = {3: "10, 16, 22, 28", 4: "13, 21, 29, 37"}[len(strides)]
    with pytest.raises(InputError, match=rf"--depth {depth} .*{fits}"):
        WideResNet(depth, 2, strides)


def test_no_strides_is_an_input_error() -> None:
    with pytest.raises(InputError, match="stride"):
        WideResNet(28, 2, ())


def test_weights_come_from_the_generator_alone() -> None:
    first, again, other = (WideResNet(10, 1) for _ in range(3))
    for network, seed in ((first, 1), (again, 1), (other, 2)):
        initialize(network, torch.Generator().manual_seed(seed))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.stem.weight, other.stem.weight)


def test_he_initialisation_keeps_the_scale_of_the_gradient() -> None:
    network = WideResNet(10, 8)
    initialize(network, torch.Generator().manual_seed(0))
    weight = network.blocks[1].conv1.weight  # fan out: 256 channels of 3x3
    assert weight.std().item() == pytest.approx((2 / (1 + 0.1**2) / (256 * 9)) ** 0.5, rel=0.02)


def exact_network(depth: int = 10, width: int = 2, strides: tuple[int, ...] = (1, 2, 2)) -> WideResNet:
    """In float64 and with next to no epsilon, the one thing in it that does not grow with the weights."""
    network = WideResNet(depth, width, strides).double()
    initialize(network, torch.Generator().manual_seed(1))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps, module.momentum = 1e-14, 0.5
    return network


def some_images() -> torch.Tensor:
    return torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize(("depth", "width", "strides"), [(28, 2, (1, 2, 2)), (10, 1, (1, 2, 2)), (10, 1, (2, 2, 1))])
@pytest.mark.parametrize("training", [True, False])
def test_a_rescaled_network_computes_the_same(depth: int, width: int, strides: tuple[int, ...], training: bool) -> None:
    network, images = exact_network(depth, width, strides), some_images()
    network(images)  # running statistics that are not those of the start
    network.train(training)
    before = network(images)
    network.rescale(3.0)
    torch.testing.assert_close(network(images), before)


def test_a_learning_rate_counts_less_for_larger_weights() -> None:
    """Weights f times as large have 1/f of the gradient, so a step turns them by 1/f²."""
    gradients = []
    for factor in (1.0, 5.0):
        network = exact_network()
        network.rescale(factor)
        (network(some_images()) * torch.linspace(-1, 1, 16, dtype=torch.float64).view(4, 4)).sum().backward()
        gradients.append(network.each_block()[1].conv1.weight.grad)
    torch.testing.assert_close(gradients[1], gradients[0] / 5)

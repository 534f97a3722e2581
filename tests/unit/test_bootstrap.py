"""BYOL: its loss by hand, the slow network that it learns from, and what keeps them apart."""

import math

import torch
from torch import Tensor, nn

from dpssl.data.share import Share
from dpssl.training.optim import FlatSGD
from dpssl.warm_start.bootstrap import Bootstrap, spread_share

ALONE = Share()


class FirstPixels(nn.Module):
    """A backbone whose features are the first pixels of the image, times a weight."""

    n_features = 3

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.scale * images[:, :, :1, :1]


class Same(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def small_network() -> tuple[Bootstrap, FlatSGD]:
    torch.manual_seed(0)
    network = Bootstrap(FirstPixels()).train()
    optimizer = FlatSGD(network, momentum=0.0, weight_decay=0.0, ema_decay=0.5)
    network.learn_from(optimizer.averaged(network))
    return network, optimizer


def plain_network() -> Bootstrap:
    """Projection and prediction change nothing, so that the loss is about the first pixels."""
    network = Bootstrap(FirstPixels())
    network.projection = network.prediction = nn.Sequential(Same())
    network.learn_from(dict(network.named_parameters()))
    return network


def views(*rows: tuple[float, float, float]) -> Tensor:
    return torch.tensor(rows)[..., None, None]


def test_two_images_by_hand() -> None:
    """One image whose views are alike (cosine 1), one whose views are at right angles: means 0 and 2, both ways."""
    loss, _ = plain_network().loss(views((1, 0, 0), (0, 2, 0), (3, 0, 0), (0, 0, 1)), ALONE)
    assert loss.item() == 1.0


def test_opposite_views_are_the_worst() -> None:
    loss, _ = plain_network().loss(views((1, 2, 2), (-1, -2, -2)), ALONE)
    assert math.isclose(loss.item(), 4.0, rel_tol=1e-6)


def test_spread_by_hand() -> None:
    assert spread_share(torch.tensor([[0.6, 0.8]] * 4)).item() == 0
    assert spread_share(torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])).item() == 1
    assert spread_share(torch.tensor([[1.0, 0], [0, 1]])).item() == 0.5


def test_the_slow_network_is_the_moving_average_and_goes_on_being_it() -> None:
    network, optimizer = small_network()
    (slow,) = network._slow
    before = network.prediction[0].weight.detach().clone()
    optimizer.learning_rate.fill_(1.0)
    optimizer.step([torch.ones_like(parameter) for parameter in optimizer.parameters])
    torch.testing.assert_close(network.prediction[0].weight.detach(), before - 1)
    torch.testing.assert_close(slow.prediction[0].weight, before - 0.5)
    optimizer.use_average()
    optimizer.use_weights()
    torch.testing.assert_close(slow.prediction[0].weight, before - 0.5)


def test_the_slow_network_is_not_trained() -> None:
    network, optimizer = small_network()
    names = [name for name, _ in network.named_parameters()]
    assert not any("slow" in name for name in names)
    assert len(optimizer.parameters) == len(names)
    loss, _ = network.loss(torch.rand(8, 3, 4, 4), ALONE)
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is None for parameter in network._slow[0].parameters())
    assert network.backbone.get_parameter("scale").grad is not None


def test_the_loss_is_zero_only_where_a_view_tells_of_the_other() -> None:
    """A view is compared with the slow answer to the image's other view, not to itself."""
    network = plain_network()
    loss, _ = network.loss(views((1, 0, 0), (0, 1, 0), (0, 1, 0), (1, 0, 0)), ALONE)
    assert loss.item() == 2.0

"""A backbone that learns from images alone: the loss by hand and by a slow loop, and what training leaves."""

import math
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional as F

from dpssl.config import Config, load_preset, with_values
from dpssl.data.batches import ImageBank
from dpssl.labeling.train import start_network
from dpssl.nets.backbones import build_backbone, scale_free_norm
from dpssl.nets.pooling import average_pool
from dpssl.training.watch import StopRequested, Watch
from dpssl.warm_start import train_warm_start
from dpssl.warm_start.contrast import contrast_loss
from dpssl.warm_start.train import _start


def test_two_images_by_hand() -> None:
    """Views a, b of two images and their others: a with itself (cosine 1), b with its opposite (cosine -1)."""
    embeddings = torch.tensor([[1.0, 0], [0, 1], [1, 0], [0, -1]])
    losses, found = contrast_loss(embeddings, temperature=0.5)
    near = math.log(math.exp(2) + 2) - 2  # others at cosine 0
    far = math.log(math.exp(-2) + 2) + 2
    torch.testing.assert_close(losses, torch.tensor([near, far, near, far]))
    assert found.tolist() == [True, False, True, False]


def test_the_formula_as_a_slow_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    views = F.normalize(torch.randn(10, 4, generator=generator, dtype=torch.float64), dim=1)
    losses, _ = contrast_loss(views, 0.3)
    for i in range(10):
        terms = {k: math.exp(float(views[i] @ views[k]) / 0.3) for k in range(10) if k != i}
        assert losses[i].item() == pytest.approx(-math.log(terms[(i + 5) % 10] / sum(terms.values())))


def test_views_that_are_all_alike_are_a_guess() -> None:
    losses, _ = contrast_loss(torch.ones(8, 1), 0.1)
    torch.testing.assert_close(losses, torch.full((8,), math.log(7)))


@pytest.fixture(scope="module")
def bank() -> ImageBank:
    images = (load_digits().images[:400, ..., None] * 15).astype("uint8")
    return ImageBank.from_numpy(images, torch.device("cpu"))


def settings(**values: object) -> Config:
    """A few steps that show something: views that are nearly the whole image."""
    small = {"warm_steps": 60, "warm_batch_size": 64, "warm_crop": 0.6, "window": 5, "threads": 1}
    return with_values(load_preset("digits"), {**small, **values})


def neighbors_agree(weights: dict[str, Tensor], bank: ImageBank, config: Config) -> float:
    """Share of images whose nearest other image, by the backbone's features, shows the same digit."""
    backbone = build_backbone(config.backbone, 1)
    backbone.load_state_dict(weights)
    with torch.no_grad():
        features = F.normalize(average_pool(backbone.eval()(bank.network_input(bank.images))), dim=1)
    similarity = features @ features.T - 2 * torch.eye(len(bank))
    truth = torch.from_numpy(load_digits().target[: len(bank)])
    return float((truth[similarity.argmax(1)] == truth).float().mean())


METHODS = pytest.mark.parametrize("method", ["simclr", "byol"])


@METHODS
def test_neighbours_come_to_be_of_one_class(bank: ImageBank, method: str) -> None:
    """The published fact that it rests on: features learnt without labels tell classes apart."""
    config = settings(warm_method=method)
    drawn = start_network(config, 10, bank).backbone.state_dict()
    learnt = train_warm_start(bank, torch.arange(len(bank)), config, Watch(progress=False))
    assert neighbors_agree(learnt, bank, config) > neighbors_agree(drawn, bank, config) + 0.02


@METHODS
def test_stopped_and_resumed_is_unbroken(bank: ImageBank, tmp_path: Path, method: str) -> None:
    config, pool = settings(warm_steps=10, warm_method=method), torch.arange(len(bank))
    whole = train_warm_start(bank, pool, config, Watch(progress=False))
    stopped = Watch(tmp_path, {"seed": 1}, progress=False)
    stopped.stop_requested = True
    with pytest.raises(StopRequested):
        train_warm_start(bank, pool, config, stopped)
    resumed = train_warm_start(bank, pool, config, Watch(tmp_path, {"seed": 1}, progress=False))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_images_outside_the_pool_are_never_seen(bank: ImageBank) -> None:
    """Fewer images than a batch holds: each once a step, so none is told from itself."""
    other = bank.with_images(bank.images.permute(0, 2, 3, 1).numpy().copy())
    other.images[40:] = 255 - other.images[40:]
    config, pool = settings(warm_steps=5), torch.arange(40)
    one, two = (train_warm_start(each, pool, config, Watch(progress=False)) for each in (bank, other))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_labeling_functions_start_from_it(bank: ImageBank) -> None:
    config = settings(warm_steps=5)
    warm = train_warm_start(bank, torch.arange(len(bank)), config, Watch(progress=False))
    network, cold = start_network(config, 10, bank, warm), start_network(config, 10, bank)
    assert torch.equal(network.backbone.get_parameter("stem.weight"), warm["stem.weight"])
    assert torch.equal(network.heads.weight, cold.heads.weight)
    assert not torch.equal(network.pooling.centers, cold.pooling.centers), "centres lie in the learnt features"


def test_a_rescaled_start_has_the_norm_of_the_drawn_weights(bank: ImageBank) -> None:
    norms = []
    for rescale in (True, False):
        config = settings(warm_steps=5, rescale_start=rescale, weight_decay=0.5)
        drawn = scale_free_norm(_start(config, bank).backbone)
        warm = train_warm_start(bank, torch.arange(len(bank)), config, Watch(progress=False))
        norms.append(scale_free_norm(start_network(config, 10, bank, warm).backbone) / drawn)
    assert norms[0] == pytest.approx(1, rel=1e-4)
    assert norms[1] < 0.99

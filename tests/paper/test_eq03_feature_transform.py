"""Eq. 3, the feature transform: f_k = Σ_j a_jk (f[j] - c_k), with a_jk a softmax over k of -β_k |f[j] - c_k|².

Positions f[j] are L2-normalised and so are the results f_k, to a norm that is a setting: docs/method.md.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from dpssl.config import Config, with_values
from dpssl.data.batches import ImageBank
from dpssl.labeling.train import start_network
from dpssl.labeling.vote import feature_diagnostics
from dpssl.nets.pooling import AveragePooling, FeatureTransform, start_centers, unit_positions

NORM = 3.0


def make_transform(n_lfs: int, n_features: int, seed: int = 0) -> FeatureTransform:
    generator = torch.Generator().manual_seed(seed)
    transform = FeatureTransform(n_lfs, n_features, NORM)
    with torch.no_grad():
        transform.centers.normal_(std=0.5, generator=generator)
        transform.log_sharpness.normal_(std=0.5, generator=generator)
    return transform


def feature_transform_by_the_book(feature_map: list[list[float]], centers: list[list[float]], beta: list[float]):
    """Eq. 3 for one image in plain Python: (HW, D), (K, D), (K,) -> (K, D) of norm NORM."""
    n_lfs, n_features = len(centers), len(centers[0])
    unit = [[value / math.hypot(*position) for value in position] for position in feature_map]
    result = [[0.0] * n_features for _ in range(n_lfs)]
    for position in unit:
        distance = [sum((f - c) ** 2 for f, c in zip(position, center, strict=True)) for center in centers]
        weights = [math.exp(-b * d) for b, d in zip(beta, distance, strict=True)]
        for k in range(n_lfs):
            for d in range(n_features):
                result[k][d] += weights[k] / sum(weights) * (position[d] - centers[k][d])
    return [[value / math.hypot(*row) * NORM for value in row] for row in result]


def test_equals_the_slow_loop() -> None:
    transform = make_transform(n_lfs=4, n_features=5)
    features = torch.randn(3, 5, 2, 3, generator=torch.Generator().manual_seed(1))
    result = transform(features)
    for image, lf_features in zip(features, result, strict=True):
        expected = feature_transform_by_the_book(
            image.flatten(1).t().tolist(), transform.centers.tolist(), transform.sharpness().tolist()
        )
        torch.testing.assert_close(lf_features, torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_by_hand() -> None:
    # f = (3, 0) and (0, 5), normalised (1, 0) and (0, 1), are the centres too: squared distances 0 and 2.
    # β = log(3)/2 makes the assignments 3/4 and 1/4: f_1 = ¼·(-1, 1), f_2 = ¼·(1, -1), both brought to norm sqrt(2).
    transform = FeatureTransform(2, 2, norm=2**0.5)
    with torch.no_grad():
        transform.centers.copy_(torch.eye(2))
        transform.start_sharpness.fill_(math.log(3) / 2)
    features = torch.tensor([[[3.0, 0.0], [0.0, 5.0]]]).unsqueeze(-1)  # (1, D, 2, 1)
    assignment = transform.assignment(unit_positions(features))
    torch.testing.assert_close(assignment, torch.tensor([[[0.75, 0.25], [0.25, 0.75]]]))
    torch.testing.assert_close(transform(features), torch.tensor([[[-1.0, 1.0], [1.0, -1.0]]]))


def test_one_lf_takes_every_position_whole() -> None:
    transform = make_transform(n_lfs=1, n_features=6)
    features = torch.randn(4, 6, 3, 3, generator=torch.Generator().manual_seed(3))
    positions = torch.nn.functional.normalize(features.flatten(2).transpose(1, 2), dim=-1)
    residual = (positions - transform.centers).sum(1)
    expected = torch.nn.functional.normalize(residual, dim=-1) * NORM
    torch.testing.assert_close(transform(features)[:, 0], expected)


def test_each_position_is_assigned_whole_and_nearer_centers_get_more() -> None:
    transform = FeatureTransform(3, 2)
    with torch.no_grad():
        transform.centers.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    assignment = transform.assignment(torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]]))
    torch.testing.assert_close(assignment.sum(-1), torch.ones(1, 2))
    assert assignment[0, 0, 0] > assignment[0, 0, 1] > assignment[0, 0, 2]
    assert assignment[0, 1, 2] > assignment[0, 1, 1] > assignment[0, 1, 0]


def test_the_scale_of_the_feature_map_does_not_matter() -> None:
    transform = make_transform(3, 4)
    features = torch.randn(2, 4, 2, 2, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(transform(features), transform(7.6 * features))


def test_a_dark_feature_map_gives_finite_features_and_gradients() -> None:
    transform = make_transform(3, 4)
    features = torch.zeros(2, 4, 2, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(transform(features).square().sum(), features)
    assert torch.isfinite(transform(features)).all()
    assert torch.isfinite(gradient).all()


def test_gradient() -> None:
    transform = make_transform(n_lfs=3, n_features=4).double()
    features = torch.randn(2, 4, 2, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def pooled(features: Tensor, centers: Tensor, log_sharpness: Tensor) -> Tensor:
        values = {"centers": centers, "log_sharpness": log_sharpness}
        return torch.func.functional_call(transform, values, (features,))

    inputs = (features, transform.centers.detach().clone(), transform.log_sharpness.detach().clone())
    assert torch.autograd.gradcheck(pooled, tuple(value.requires_grad_() for value in inputs))


@pytest.mark.parametrize("rate", [0.0, 0.1, 3.0])
def test_centers_move_at_a_rate_of_their_own_and_nothing_else_changes(rate: float) -> None:
    features = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(9)).requires_grad_()
    weights = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(10))
    transform = make_transform(n_lfs=3, n_features=4)
    slower = make_transform(n_lfs=3, n_features=4)
    slower.center_rate = rate
    pooled, again = transform(features), slower(features)
    assert torch.equal(pooled, again)
    (of_images, of_centers, of_sharpness), (of_images_again, of_slower, of_sharpness_again) = (
        torch.autograd.grad((result * weights).sum(), (features, module.centers, module.log_sharpness))
        for result, module in ((pooled, transform), (again, slower))
    )
    torch.testing.assert_close(of_slower, rate * of_centers)
    torch.testing.assert_close(of_images_again, of_images)
    torch.testing.assert_close(of_sharpness_again, of_sharpness)
    assert of_centers.norm() > 0.1


def test_an_lf_whose_center_has_left_the_positions_is_dead() -> None:
    """It pools next to nothing, the same of every image, and no gradient leads back: why centres must move slowly."""
    features = torch.randn(6, 4, 3, 3, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    for away, lives in ((1.0, True), (5.0, False)):
        transform = FeatureTransform(3, 4, NORM).double()
        with torch.no_grad():
            transform.start_sharpness.fill_(3.0)
            transform.centers.copy_(torch.tensor([[0.6, 0, 0, 0], [0, 0, 0, 0], [0, 0.6 * away, 0.8 * away, 0]]))
        pooled = transform(features)[:, 2]
        (gradient,) = torch.autograd.grad(pooled[:, 0].sum(), transform.centers)
        assert (pooled.std(0).max().item() > 0.1) == lives
        assert (gradient[2].norm().item() > 1e-3) == lives


def test_without_the_transform_every_lf_sees_the_average() -> None:
    features = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(6))
    pooled = AveragePooling(5)(features)
    assert pooled.shape == (2, 5, 4)
    for k in range(5):
        torch.testing.assert_close(pooled[:, k], features.mean((2, 3)))


# A start that is not inert


@pytest.fixture(scope="module")
def digits() -> ImageBank:
    images = (load_digits().images[:300] * 255 / 16).astype(np.uint8)[..., None]
    return ImageBank.from_numpy(images, torch.device("cpu"))


@pytest.mark.parametrize(("allowed", "least", "most"), [(2.0, 1.5, 6.0), (1.0, 3.0, 3.0), (0.0, 0.0, math.inf)])
def test_sharpness_stays_within_its_range(allowed: float, least: float, most: float) -> None:
    transform = FeatureTransform(3, 2, sharpness_range=allowed)
    with torch.no_grad():
        transform.start_sharpness.fill_(3.0)
        assert transform.sharpness().tolist() == pytest.approx([3.0] * 3)
        transform.log_sharpness.copy_(torch.tensor([-100.0, 0.0, 100.0]))
    low, middle, high = transform.sharpness().tolist()
    assert (low, middle, high) == pytest.approx((least, 3.0, most))


def mean_pairwise_cosine(lf_features: Tensor) -> float:
    unit = torch.nn.functional.normalize(lf_features, dim=-1)  # (B, K, D)
    n_lfs = unit.shape[1]
    cosines = unit @ unit.transpose(1, 2)
    return cosines[:, ~torch.eye(n_lfs, dtype=torch.bool)].mean().item()


@pytest.mark.parametrize(("n_lfs", "seed"), [(10, 1), (20, 2), (50, 3)])
@torch.no_grad()
def test_a_fresh_network_is_not_inert(digits: ImageBank, n_lfs: int, seed: int) -> None:
    config = with_values(Config(), {"depth": 10, "width": 1, "n_lfs": n_lfs, "seed": seed})
    network = start_network(config, n_classes=10, bank=digits)
    inputs = digits.network_input(digits.images)
    cosine = mean_pairwise_cosine(network.lf_features(inputs))
    assignment = network.pooling.assignment(unit_positions(network.backbone(inputs)))
    entropy = torch.distributions.Categorical(assignment).entropy().mean().item()
    assert cosine < 0.8
    assert entropy < 0.96 * math.log(n_lfs)  # an inert one measured .985 to .997
    assert entropy / math.log(n_lfs) == pytest.approx(config.labeling.assignment_entropy, abs=0.03)
    shown = feature_diagnostics(network, digits)
    assert shown["feature_cosine"] == pytest.approx(cosine, abs=1e-3)
    assert shown["assignment_entropy"] == pytest.approx(entropy / math.log(n_lfs), abs=1e-3)


def test_the_same_seed_starts_the_same_network(digits: ImageBank) -> None:
    config = with_values(Config(), {"depth": 10, "width": 1, "n_lfs": 6})
    first, again = (start_network(config, 10, digits).state_dict() for _ in range(2))
    other = start_network(dataclasses.replace(config, run=dataclasses.replace(config.run, seed=9)), 10, digits)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["pooling.centers"], other.state_dict()["pooling.centers"])


@pytest.mark.parametrize("target", [0.5, 0.9])
def test_the_sharpness_meets_its_target_and_the_centers_lie_among_the_positions(target: float) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(64, 8, 2, 2, generator=generator)
    transform = FeatureTransform(6, 8)
    start_centers(transform, features, target, generator)
    positions = unit_positions(features)
    entropy = torch.distributions.Categorical(transform.assignment(positions)).entropy().mean().item()
    assert entropy / math.log(6) == pytest.approx(target, abs=1e-3)
    nearest = torch.cdist(positions.flatten(0, 1), transform.centers).argmin(-1)
    for k in range(6):
        members = positions.flatten(0, 1)[nearest == k]
        assert len(members) > 0
        assert torch.nn.functional.cosine_similarity(members.mean(0), transform.centers[k], dim=0) > 0.9


def test_more_centers_than_different_positions_is_no_failure() -> None:
    transform = FeatureTransform(5, 3)
    start_centers(transform, torch.ones(2, 3, 1, 1), 0.4, torch.Generator().manual_seed(0))
    assert all(torch.isfinite(parameter).all() for parameter in transform.parameters())

"""What objectives share: the ramp, sharpening, the squared difference and mixup."""

import math

import pytest
import torch

from dpssl.baselines.parts import Ramp, mix_up, sharpen, soft_cross_entropy, squared_difference


def test_ramp_rises_over_its_share_and_stays() -> None:
    ramp = Ramp(length=0.4 * 10)
    assert [ramp().item() for _ in range(7)] == pytest.approx([0, 0.25, 0.5, 0.75, 1, 1, 1])
    assert [Ramp(0.0 * 10)().item() for _ in range(2)] == [1, 1]


def test_sharpening_by_hand() -> None:
    # (.8, .2)² = (.64, .04), normalised by .68.
    assert sharpen(torch.tensor([[0.8, 0.2]]), 0.5).tolist()[0] == pytest.approx([0.64 / 0.68, 0.04 / 0.68])
    assert sharpen(torch.tensor([[0.8, 0.2]]), 1.0).tolist()[0] == pytest.approx([0.8, 0.2])


def test_sharpening_ends_at_one_hot() -> None:
    """MixMatch on sharpening: as T goes to 0, the output approaches a Dirac distribution."""
    assert sharpen(torch.tensor([[0.4, 0.35, 0.25, 0.0]]), 0.001).tolist()[0] == pytest.approx([1, 0, 0, 0])


def test_distances_by_hand() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
    targets = torch.tensor([[0.2, 0.55, 0.25]])
    assert squared_difference(logits, targets).item() == pytest.approx((0.09 + 0.09) / 3)
    expected = 0.2 * math.log(2) + 0.8 * math.log(4)
    assert soft_cross_entropy(logits, targets).item() == pytest.approx(expected)


def test_mixup_keeps_a_row_nearer_to_itself() -> None:
    """MixMatch on mixup: λ' = max(λ, 1 - λ), so a mixed row is at least half its own."""
    inputs, targets = torch.arange(200.0).view(200, 1, 1, 1), torch.eye(200)
    mixed, mixed_targets = mix_up(inputs, targets, 0.75, torch.Generator().manual_seed(0))
    own = mixed_targets.diagonal()
    assert (own >= 0.5).all()
    assert 0.5 < own.mean() < 1
    assert mixed_targets.sum(1) == pytest.approx(torch.ones(200))
    # Inputs are mixed as targets are: each mixed input is the mean of the inputs under its target.
    torch.testing.assert_close(mixed.flatten(), mixed_targets @ inputs.flatten())


def test_mixup_draws_from_beta() -> None:
    """E max(λ, 1 - λ) of λ ~ Beta(1, 1), the uniform distribution, is 3/4; of a tiny α it goes to 1."""
    generator = torch.Generator().manual_seed(0)
    for alpha, expected in ((1.0, 0.75), (0.01, 1.0)):
        _, mixed = mix_up(torch.zeros(1000, 1), torch.eye(1000), alpha, generator)
        assert mixed.diagonal().mean().item() == pytest.approx(expected, abs=0.03)


def test_no_alpha_is_no_mixup() -> None:
    inputs, targets = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)), torch.eye(5)
    assert mix_up(inputs, targets, 0.0, torch.Generator()) == (inputs, targets)

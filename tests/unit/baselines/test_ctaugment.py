"""CTAugment: which strengths it draws and how it learns them; FixMatch with it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dpssl.baselines.ctaugment import N_BINS, CTAugment, Policy, strength, strength_table
from dpssl.config import ALL_OPS


@pytest.fixture
def cta() -> CTAugment:
    return CTAugment(("rotate", "solarize"), depth=2, threshold=0.8, decay=0.99)


def test_at_first_every_strength_is_as_likely(cta: CTAugment) -> None:
    """ReMixMatch, Sec. 3.2.2: all weights start at 1."""
    assert cta.weights() == pytest.approx(torch.full((2, N_BINS), 1 / N_BINS))


def test_strengths_below_the_threshold_are_not_drawn(cta: CTAugment) -> None:
    """Sec. 3.2.2: a bin whose weight is below .8 is set to 0 before one is drawn."""
    cta.rates[0, :15], cta.rates[0, 15], cta.rates[0, 16] = 0.5, 0.85, 1.0
    expected = torch.tensor([0.86 / 1.01, 1.0])
    assert cta.weights()[0, :15].max() == 0
    assert cta.weights()[0, 15:] == pytest.approx(expected / expected.sum())
    policy = cta.draw(2000, torch.Generator().manual_seed(0))
    bins = policy.bin[policy.op == 0]
    assert set(bins.tolist()) == {15, 16}
    assert (bins == 15).float().mean().item() == pytest.approx(expected[0].item() / expected.sum().item(), abs=0.03)


def test_rates_by_hand(cta: CTAugment) -> None:
    """rate <- .99 rate + .01 p(y | probe), twice for a bin that two images hit."""
    policy = Policy(op=torch.tensor([[0, 0, 1]]), bin=torch.tensor([[3, 3, 16]]))
    one = CTAugment(("rotate", "solarize"), depth=1, threshold=0.8, decay=0.99)
    one.learn(policy, torch.tensor([0.2, 0.4, 0.9]))
    assert one.rates[0, 3].item() == pytest.approx(0.99**2 + (1 - 0.99**2) * 0.3)
    assert one.rates[1, 16].item() == pytest.approx(0.99 + 0.01 * 0.9)
    one.rates[0, 3], one.rates[1, 16] = 1.0, 1.0
    assert (one.rates == 1).all()


def test_strengths_that_are_not_recognised_die_out(cta: CTAugment) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        probe = cta.draw(64, generator, probe=True)
        gentle = ((probe.op == 1) | ((probe.bin > 4) & (probe.bin < 12))).all(0)  # far rotations are not recognised
        cta.learn(probe, gentle.float())
    drawn = cta.draw(500, generator)
    rotations = drawn.bin[drawn.op == 0]
    assert ((rotations > 4) & (rotations < 12)).float().mean() > 0.99


def test_ranges_of_the_authors_code() -> None:
    assert [strength("rotate", level, 32, 32) for level in (0, 0.5, 1)] == [-45, 0, 45]
    assert [strength("brightness", level, 32, 32) for level in (0, 1)] == pytest.approx([0.1, 2.0])
    assert [strength("posterize", level, 32, 32) for level in (0, 1)] == [1, 8]
    assert [strength("solarize", level, 32, 32) for level in (0, 1)] == [0, 255]
    assert strength("translate_x", 1, 32, 10) == pytest.approx(3)
    table = strength_table(ALL_OPS, 8, 8, torch.device("cpu"))
    assert table.shape[:2] == (len(ALL_OPS), N_BINS)
    assert torch.isfinite(table).all()


def test_turns_change_images_as_the_policy_says(cta: CTAugment) -> None:
    images = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    policy = Policy(op=torch.tensor([[1], [0]]), bin=torch.tensor([[0], [8]]))  # solarize at its lowest, rotate by 0
    turns = cta.turns(images, policy)
    assert turns.shape[:2] == (2, 1)
    assert not torch.equal(turns[0], turns[1])


def test_a_probe_tries_every_strength(cta: CTAugment) -> None:
    """Sec. 3.2.2: for the update, bins are drawn uniformly, or one that was given up could never come back."""
    cta.rates[:, :15] = 0
    generator = torch.Generator().manual_seed(0)
    assert cta.draw(2000, generator).bin.min() == 15
    probed = torch.bincount(cta.draw(2000, generator, probe=True).bin.flatten(), minlength=N_BINS) / 4000
    assert probed == pytest.approx(torch.full((N_BINS,), 1 / N_BINS), abs=0.015)


def test_fixmatch_probes_strengths_that_it_does_not_train_on(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    system = make_system("fixmatch-cta")
    given_up = system.cta.rates[:, :16]
    given_up.fill_(0)
    rows = torch.zeros(200, 3), torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(200, 3)  # every probe gives 1/3
    system.loss(make_batch(labels=[0] * 200), learner(*rows))
    assert (given_up > 0).float().mean() > 0.5


def test_published_settings(make_system: Callable[..., Any]) -> None:
    """FixMatch's code: two operations, threshold .8 and decay .99; τ = .95 and λ_u = 1 as with RandAugment."""
    s = make_system("fixmatch-cta").settings
    assert (s.cta_depth, s.cta_threshold, s.cta_decay) == (2, 0.8, 0.99)
    assert (s.threshold, s.unlabeled_weight) == (0.95, 1)


def test_fixmatch_with_it_by_hand_and_without_operations(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    """The same loss as FixMatch on the same logits; the probe enters the rates alone."""
    generator = torch.Generator().manual_seed(0)
    labeled, strong, weak, probed = (3 * torch.randn(n, 3, generator=generator) for n in (2, 9, 9, 2))
    batch = make_batch(labels=[0, 2], n_unlabeled=9)
    plain, _ = make_system("fixmatch", threshold=0.7).loss(batch, learner(labeled, strong, weak))
    for depth in (0, 1):
        system = make_system("fixmatch-cta", threshold=0.7, cta_depth=depth)
        chosen = learner(labeled, strong, weak, probed)
        loss, metrics = system.loss(batch, chosen)
        assert loss.item() == plain.item()
        expected = probed.softmax(-1)[[0, 1], [0, 2]]
        assert metrics["probe_accuracy"].item() == pytest.approx(expected.mean().item())
        assert (system.cta.rates != 1).sum() == 2 * depth
        assert chosen.asked == ["weak", "strong by turns", "weak", "strong by turns"]
        assert (chosen.seen[0], chosen.seen[3]) == ("L0 weak, L1 weak", "L0 strong, L1 strong")

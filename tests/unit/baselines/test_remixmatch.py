"""ReMixMatch: alignment, every loss term by hand, and its limits."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dpssl.baselines.parts import mix_up, soft_cross_entropy
from dpssl.baselines.remixmatch import turn_images
from dpssl.errors import InputError


def log(*probabilities: float) -> list[float]:
    return [math.log(p) for p in probabilities]


GUESS = torch.tensor([log(0.75, 0.25), log(0.9, 0.1)])  # the weak view, and the labelled one as a probe
ROWS = torch.tensor(
    [
        log(0.25, 0.75),  # labelled, class 0: log 4
        log(0.5, 0.5), log(0.75, 0.25), log(0.25, 0.75),  # two strong views and the weak one, target (.75, .25)
        log(0.5, 0.5),  # the first strong view, not mixed: log 2
        log(0.5, 0.5),  # and turned: its head is blank, log 4
    ]
)  # fmt: skip
# H((.75, .25), ·) of the two strong views and the weak one: log 2, the entropy of the target, and with classes swapped.
UNLABELED_LOSS = (
    math.log(2)
    + (-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    + (-0.75 * math.log(0.25) - 0.25 * math.log(0.75))
) / 3  # fmt: skip


@pytest.fixture
def unmixed(make_system: Callable[..., Any]) -> Callable[..., Any]:
    """`unmixed(ramp_steps=4)`: two classes, two strong views, nothing sharpened or mixed, all four turns as likely."""

    def make(**settings: object) -> Any:
        plain = {"n_strong": 2, "alpha": 0, "temperature": 1}
        system = make_system("remixmatch", **{**plain, **settings}, task={"n_classes": 2, "n_features": 2})
        torch.nn.init.zeros_(system.turn_head.weight)
        torch.nn.init.zeros_(system.turn_head.bias)
        return system

    return make


def test_alignment_by_hand(make_system: Callable[..., Any]) -> None:
    # Predictions have leant to class 0 by (.8, .2), labels are (.5, .5): (.6, .4) · (.625, 2.5) = (.375, 1), of 1.375.
    system = make_system("remixmatch", temperature=1, alignment_decay=0.5, task={"n_classes": 2})
    system.mean_prediction.copy_(torch.tensor([0.8, 0.2]))
    guess = system.guess(torch.tensor([[0.6, 0.4]]))
    assert guess.tolist()[0] == pytest.approx([0.375 / 1.375, 1 / 1.375], rel=1e-4)
    assert system.mean_prediction.tolist() == pytest.approx([0.7, 0.3])


def test_alignment_makes_the_mean_guess_fair(make_system: Callable[..., Any]) -> None:
    """Sec. 3.1 of the paper: the aggregate of the guesses moves to the marginal of the labels."""
    system = make_system("remixmatch", temperature=1, alignment_decay=0.0, task={"n_classes": 3})
    rows = torch.softmax(
        torch.randn(500, 3, generator=torch.Generator().manual_seed(0)) + torch.tensor([1.0, 0, -1]), -1
    )
    before = system.guess(rows).mean(0)  # the running mean is uniform still
    after = system.guess(rows).mean(0)
    uniform = torch.full((3,), 1 / 3)
    assert (after - uniform).abs().max() < (before - uniform).abs().max() / 2


def test_every_term_by_hand_where_nothing_is_mixed(
    unmixed: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    system = unmixed(ramp_steps=0, cta_depth=1, alignment_decay=0.5)
    chosen = learner(ROWS, guess=[GUESS])
    loss, metrics = system.loss(make_batch(labels=[0], n_unlabeled=1), chosen)
    assert metrics["labeled_loss"].item() == pytest.approx(math.log(4))
    assert metrics["unlabeled_loss"].item() == pytest.approx(UNLABELED_LOSS)
    assert metrics["premix_loss"].item() == pytest.approx(math.log(2))
    assert metrics["rotation_loss"].item() == pytest.approx(math.log(4))
    assert metrics["probe_accuracy"].item() == pytest.approx(0.9)
    assert loss.item() == pytest.approx(math.log(4) + 1.5 * UNLABELED_LOSS + 0.5 * math.log(2) + 0.5 * math.log(4))
    # Only the unlabelled weak view is weak (Sec. 3.2). The probe is a strong view of its own, as in the authors' code.
    assert chosen.asked == ["weak", "strong by turns", "strong by turns", "strong by turns"]
    # What the loss itself moves: p̃ half the way from (.5, .5) to (.75, .25), and the rate of the one bin probed.
    assert system.mean_prediction.tolist() == pytest.approx([0.625, 0.375])
    assert system.cta.rates[system.cta.rates != 1].tolist() == pytest.approx([0.99 + 0.01 * 0.9])


def test_each_view_has_the_guess_of_its_own_image(
    unmixed: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    system = unmixed(ramp_steps=0, alignment=False, cta_depth=0)
    zero, one, even = log(0.75, 0.25), log(0.25, 0.75), log(0.5, 0.5)
    rows = [even, zero, even, even, one, one, even, zero, even, even, even]
    # Guesses: (.75, .25) of U0, (.25, .75) of U1. H of a guess with itself, with the classes swapped, with (.5, .5).
    itself, swapped = -0.75 * math.log(0.75) - 0.25 * math.log(0.25), -0.75 * math.log(0.25) - 0.25 * math.log(0.75)
    chosen = learner(torch.tensor(rows), guess=[torch.tensor([zero, one, zero])])
    _, metrics = system.loss(make_batch(labels=[0], n_unlabeled=2), chosen)
    assert metrics["unlabeled_loss"].item() == pytest.approx((2 * itself + swapped + 3 * math.log(2)) / 6)
    assert metrics["premix_loss"].item() == pytest.approx((itself + math.log(2)) / 2)
    strong = "U0 strong, U1 strong"
    assert chosen.seen == [
        "U0 weak, U1 weak, L0 strong",  # the guesses and the probe
        f"L0 strong, {strong}, {strong}, U0 weak, U1 weak, {strong}, {strong}",  # to mix; unmixed; turned
    ]


def test_labelled_and_unlabelled_views_are_mixed_with_each_other(
    unmixed: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    """As in MixMatch; the strong view that counts unmixed as well has the guess itself as its target."""
    system = unmixed(alpha=0.75, ramp_steps=0, alignment=False, cta_depth=0)  # nothing else draws before mixup
    targets = torch.tensor([[0.0, 1.0]] + [[0.75, 0.25]] * 3)
    _, mixed = mix_up(targets, targets, 0.75, torch.Generator().manual_seed(1))
    chosen = learner(ROWS, guess=[GUESS])
    chosen.generator.manual_seed(1)
    _, metrics = system.loss(make_batch(labels=[1]), chosen)
    assert (mixed[0] != targets[0]).any(), "the labelled row met no other"
    assert metrics["labeled_loss"].item() == pytest.approx(soft_cross_entropy(ROWS[:1], mixed[:1]).item())
    assert metrics["unlabeled_loss"].item() == pytest.approx(soft_cross_entropy(ROWS[1:4], mixed[1:]).mean().item())
    assert metrics["premix_loss"].item() == pytest.approx(math.log(2))


def test_the_ramp_lifts_the_unlabelled_terms_and_not_the_turn(
    unmixed: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    """All terms at once, λ_U = 2, λ_U1 = 3, λ_r = 4, r(t) over four steps; as in the authors' code, not on the turn."""
    weights = {"unlabeled_weight": 2, "premix_weight": 3, "rotation_weight": 4}
    system = unmixed(ramp_steps=4, alignment=False, cta_depth=0, **weights)
    losses = [system.loss(make_batch(), learner(ROWS, guess=[GUESS]))[0].item() for _ in range(6)]
    full = 2 * UNLABELED_LOSS + 3 * math.log(2)
    assert losses[0] == pytest.approx(math.log(4) + 4 * math.log(4))
    assert losses[2] == pytest.approx(math.log(4) + full / 2 + 4 * math.log(4))
    assert losses[4:] == pytest.approx([math.log(4) + full + 4 * math.log(4)] * 2)


def test_without_its_additions_it_is_supervised(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    system = make_system(
        "remixmatch", n_strong=1, alpha=0, unlabeled_weight=0, premix_weight=0, rotation_weight=0, cta_depth=0
    )
    generator = torch.Generator().manual_seed(0)
    aside, rows = torch.randn(2 + 1, 3, generator=generator), torch.randn(1 + 2 + 2 + 2, 3, generator=generator)
    loss, metrics = system.loss(make_batch(labels=[1], n_unlabeled=2), learner(rows, guess=[aside]))
    assert loss.item() == pytest.approx(F.cross_entropy(rows[:1], torch.tensor([1])).item())
    assert "rotation_loss" not in metrics


def test_turns_are_right_angles() -> None:
    """The four classes of its rotation loss: 0, 90, 180 and 270 degrees (Sec. 3.3)."""
    image = torch.arange(9, dtype=torch.uint8).view(1, 1, 3, 3)
    turned, turn = turn_images(image.repeat(8, 1, 1, 1))
    assert sorted(turn.tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    for picture, k in zip(turned, turn.tolist(), strict=True):
        assert torch.equal(picture, torch.rot90(image[0], k, (1, 2)))


def test_images_that_are_not_square_cannot_be_turned(make_system: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=r"they are 6x4; make them square or give .* rotation_weight=0"):
        make_system("remixmatch", task={"image_size": (4, 6)})
    make_system("remixmatch", rotation_weight=0, task={"image_size": (4, 6)})


def test_published_settings(make_system: Callable[..., Any]) -> None:
    """Sec. 4 of the paper: T = .5, λ_U = 1.5, λ_U1 = λ_r = .5, α = .75, K = 8. Sec. 3: p̃ over 128 batches, CTAugment
    with two operations, threshold .8 and decay .99. The authors' code: a ramp of 16,384 steps.
    """
    s = make_system("remixmatch").settings
    assert (s.alignment, s.alignment_decay, s.ramp_steps) == (True, 127 / 128, 16384)
    assert (s.cta_depth, s.cta_threshold, s.cta_decay) == (2, 0.8, 0.99)
    assert (s.temperature, s.unlabeled_weight, s.premix_weight, s.rotation_weight) == (0.5, 1.5, 0.5, 0.5)
    assert (s.alpha, s.n_strong) == (0.75, 8)

"""MixMatch: label guessing and both losses by hand, and the limit without mixup."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dpssl.baselines.parts import mix_up, soft_cross_entropy, squared_difference


def log(*probabilities: float) -> list[float]:
    return [math.log(p) for p in probabilities]


def test_guess_is_the_sharpened_mean_of_the_views(make_system: Callable[..., Any]) -> None:
    # Views (.9, .1) and (.7, .3): mean (.8, .2), squared and normalised (16, 1) / 17.
    views = torch.tensor([log(0.9, 0.1), log(0.5, 0.5), log(0.7, 0.3), log(0.5, 0.5)])  # two images, view after view
    guess = make_system("mixmatch", task={"n_classes": 2}).guess(views)
    assert guess.tolist()[0] == pytest.approx([16 / 17, 1 / 17])
    assert guess.tolist()[1] == pytest.approx([0.5, 0.5])


def test_losses_by_hand_where_nothing_is_mixed(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    """α = 0: cross-entropy on the labelled view, and (q - p)² of each of the K views with the guess of all."""
    # Two images, view after view: their means are (.8, .2) and (.3, .7), sharpened (16, 1) / 17 and (9, 49) / 58.
    guesses = torch.tensor([log(0.9, 0.1), log(0.2, 0.8), log(0.7, 0.3), log(0.4, 0.6)])
    first, second, even = log(16 / 17, 1 / 17), log(9 / 58, 49 / 58), log(0.5, 0.5)
    after = torch.tensor([log(0.25, 0.75), even, second, first, even])
    system = make_system("mixmatch", alpha=0, ramp_steps=0, task={"n_classes": 2})
    chosen = learner(after, guess=[guesses])
    loss, metrics = system.loss(make_batch(labels=[0], n_unlabeled=2), chosen)
    expected = ((16 / 17 - 0.5) ** 2 + (49 / 58 - 0.5) ** 2) / 4  # one view of each is as guessed
    assert metrics["labeled_loss"].item() == pytest.approx(math.log(4))
    assert metrics["unlabeled_loss"].item() == pytest.approx(expected, rel=1e-5)
    assert loss.item() == pytest.approx(math.log(4) + 75 * expected, rel=1e-5)
    assert chosen.asked == ["weak"] * 3
    assert chosen.seen == [
        "U0 weak, U1 weak, U0 weak, U1 weak",  # what the guess is made of
        "L0 weak, U0 weak, U1 weak, U0 weak, U1 weak",
    ]


def test_labelled_and_unlabelled_rows_are_mixed_with_each_other(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    """Algorithm 1 of the paper: every row, labelled or guessed, with one of a shuffle of them all."""
    system = make_system("mixmatch", ramp_steps=0, task={"n_classes": 2})
    guesses = torch.tensor([log(0.9, 0.1), log(0.7, 0.3)]).repeat_interleave(3, 0)  # two views of three images
    targets = torch.tensor([[0.0, 1.0]] * 2 + [[16 / 17, 1 / 17]] * 6)
    after = torch.linspace(-2, 2, 16).view(8, 2)
    chosen = learner(after, guess=[guesses])
    _, mixed = mix_up(targets, targets, system.settings.alpha, torch.Generator().manual_seed(0))  # as the learner's
    _, metrics = system.loss(make_batch(labels=[1, 1], n_unlabeled=3), chosen)
    assert (mixed[:2] != targets[:2]).any(), "no labelled row met a guessed one"
    assert metrics["labeled_loss"].item() == pytest.approx(soft_cross_entropy(after[:2], mixed[:2]).mean().item())
    assert metrics["unlabeled_loss"].item() == pytest.approx(squared_difference(after[2:], mixed[2:]).mean().item())


def test_the_weight_of_the_unlabelled_loss_rises_step_by_step(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    # Guess (.5, .5), both views (.75, .25): (.25² + .25²) / 2 = 1/16. Labelled log 2. λ_u = 3 rises over four steps.
    system = make_system("mixmatch", alpha=0, ramp_steps=4, unlabeled_weight=3, task={"n_classes": 2})
    guesses, after = torch.zeros(2, 2), torch.tensor([log(0.5, 0.5), log(0.75, 0.25), log(0.75, 0.25)])
    losses = [system.loss(make_batch(), learner(after, guess=[guesses]))[0].item() for _ in range(6)]
    assert losses == pytest.approx([math.log(2) + weight / 16 for weight in (0, 0.75, 1.5, 2.25, 3, 3)])


def test_published_settings(make_system: Callable[..., Any]) -> None:
    """The paper: T = .5, K = 2, α = .75, λ_u = 75 on CIFAR-10; the ramp is 16,384 of 2^20 steps."""
    settings = make_system("mixmatch").settings
    assert (settings.temperature, settings.n_views, settings.alpha, settings.unlabeled_weight) == (0.5, 2, 0.75, 75)
    assert settings.ramp_steps == 16384


@pytest.mark.parametrize(("n_steps", "half_way"), [(2**20, 8192), (100, 50)])
def test_the_ramp_takes_its_steps_or_all_of_a_shorter_training(
    n_steps: int, half_way: int, make_system: Callable[..., Any]
) -> None:
    ramp = make_system("mixmatch", task={"n_steps": n_steps}).ramp
    assert [ramp().item() for _ in range(half_way + 1)][-1] == pytest.approx(0.5)

"""FlexMatch: thresholds by hand, and FixMatch as the limit in which all classes are learnt equally."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dpssl.training.curriculum import convex_map


def test_convex_map_is_the_published_one() -> None:
    """The paper's choice of a non-linear mapping: M(x) = x / (2 - x), monotone from 0 to 1 and convex."""
    assert convex_map(torch.tensor([0.0, 0.5, 1.0])).tolist() == pytest.approx([0, 1 / 3, 1])
    x = torch.linspace(0, 1, 50, dtype=torch.float64)
    steps = convex_map(x).diff()
    assert (steps > 0).all()
    assert (steps.diff() > 0).all()


@pytest.mark.parametrize(("warmup", "expected"), [(True, [2 / 5, 1 / 5, 0]), (False, [1, 1 / 2, 0])])
def test_thresholds_by_hand(make_system: Callable[..., Any], warmup: bool, expected: list[float]) -> None:
    """Eight images: two learnt as class 0, one as class 1, and five not, which the warm-up's normaliser counts."""
    system = make_system("flexmatch", threshold=0.9, warmup=warmup, task={"n_images": 8})
    system.learnt_as[:3] = torch.tensor([0, 0, 1])
    assert system.thresholds().tolist() == pytest.approx([0.9 * x / (2 - x) for x in expected])


def test_only_sure_images_are_remembered_each_by_its_last_class(make_system: Callable[..., Any]) -> None:
    system = make_system("flexmatch", threshold=0.9)
    system.remember(torch.tensor([4, 7, 9]), torch.tensor([[0.0, 1.0, 0.0], [0.95, 0.05, 0.0], [0.1, 0.1, 0.8]]))
    assert system.learnt_as[:-1].tolist() == [3, 3, 3, 3, 1, 3, 3, 0, 3, 3]
    system.remember(torch.tensor([4, 7]), torch.tensor([[0.0, 0.0, 1.0], [0.2, 0.8, 0.0]]))
    assert system.learnt_as[:-1].tolist() == [3, 3, 3, 3, 2, 3, 3, 0, 3, 3]


def test_loss_by_hand_and_what_it_remembers(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    # Of four images two are learnt as class 0, one as class 1, one not: β = (1, .5, 0), so T = (.8, .8/3, 0).
    # Image 3 at .9 passes T(1), and its strong view gives class 1 only .25: log 4. Image 1 at .7 does not pass T(0).
    # Labelled log 3; the mean over both images, log(4) / 2 = log 2, has weight 5.
    system = make_system("flexmatch", threshold=0.8, unlabeled_weight=5, task={"n_images": 4})
    system.learnt_as[:3] = torch.tensor([0, 0, 1])
    strong = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]).log()
    weak = torch.tensor([[0.05, 0.9, 0.05], [0.7, 0.2, 0.1]]).log()
    chosen = learner(torch.zeros(1, 3), strong, weak)
    loss, metrics = system.loss(make_batch(n_unlabeled=2, positions=[3, 1]), chosen)
    assert metrics["unlabeled_loss"].item() == pytest.approx(math.log(2))
    assert metrics["pseudo_label_rate"].item() == 0.5
    assert loss.item() == pytest.approx(math.log(3) + 5 * math.log(2))
    assert system.learnt_as[:-1].tolist() == [0, 0, 1, 1]  # image 3 is sure now: both classes are learnt alike
    assert system.thresholds().tolist() == pytest.approx([0.8, 0.8, 0])
    assert chosen.asked == ["weak", "strong", "weak"]
    assert chosen.seen == ["L0 weak", "U0 strong, U1 strong", "U0 weak, U1 weak"]


def test_all_classes_learnt_equally_is_fixmatch(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = [3 * torch.randn(n, 3, generator=generator) for n in (4, 30, 30)]
    batch = make_batch(labels=[0, 1, 2, 0], n_unlabeled=30)
    flexmatch = make_system("flexmatch", threshold=0.8, task={"n_images": 30})
    flexmatch.learnt_as[:30] = torch.arange(30) % 3
    fixmatch = make_system("fixmatch", threshold=0.8)
    loss, metrics = flexmatch.loss(batch, learner(*logits))
    expected, reference = fixmatch.loss(batch, learner(*logits))
    assert 0.1 < metrics["pseudo_label_rate"] < 0.9
    assert loss.item() == expected.item()
    assert metrics["pseudo_label_rate"] == reference["pseudo_label_rate"]


def test_a_class_nobody_has_learnt_passes_at_any_confidence(
    make_system: Callable[..., Any], make_batch: Callable[..., Any], learner: Any
) -> None:
    """The direction of the paper's claim: classes that are hard to learn get lower thresholds."""
    system = make_system("flexmatch", task={"n_images": 4})
    system.learnt_as[:4] = torch.tensor([0, 0, 0, 0])
    logits = [torch.zeros(1, 3), torch.zeros(2, 3), torch.tensor([[math.log(4), 0, 0], [0, math.log(4), 0]])]
    _, metrics = system.loss(make_batch(n_unlabeled=2), learner(*logits))
    assert metrics["pseudo_label_rate"] == 0.5  # class 1 at 2/3 passes, class 0 at 2/3 does not


def test_published_settings(make_system: Callable[..., Any]) -> None:
    """The paper's: τ = .95 and λ_u = 1 as in FixMatch, with the warm-up of the thresholds."""
    settings = make_system("flexmatch").settings
    assert (settings.threshold, settings.unlabeled_weight, settings.warmup) == (0.95, 1, True)

"""USADTM: mutual information, templates, matching and joining by hand, and its limits."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dpssl.baselines.usadtm import LEAST_VIEWS, VIEWS_PER_LABEL, mutual_information, triplet_loss

MakeSystem = Callable[..., Any]


def test_mutual_information_by_hand() -> None:
    # P = (p p'ᵀ + its transpose) / 2 with one image: p = (.8, .2), p' = (.5, .5): P = (.4, .25; .25, .1), marginals
    # (.65, .35).
    joint = [[0.4, 0.25], [0.25, 0.1]]
    margin = [0.65, 0.35]
    expected = sum(joint[i][j] * math.log(joint[i][j] / (margin[i] * margin[j])) for i in range(2) for j in range(2))
    found = mutual_information(torch.tensor([[0.8, 0.2]]), torch.tensor([[0.5, 0.5]]))
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_mutual_information_is_largest_for_sure_and_balanced_classes() -> None:
    """The fact it rests on (IIC, Ji et al. 2019): log C where views agree surely on equal classes, 0 if constant."""
    sure = torch.eye(4).repeat(3, 1)
    assert mutual_information(sure, sure).item() == pytest.approx(math.log(4), abs=1e-4)
    constant = torch.tensor([[0.7, 0.1, 0.1, 0.1]]).repeat(12, 1)
    assert mutual_information(constant, constant).item() == pytest.approx(0, abs=1e-5)
    logits = 40 * sure
    assert triplet_loss(logits, logits, logits).item() == pytest.approx(-math.log(4), abs=1e-4)


def test_templates_are_means_of_the_latest_views(make_system: MakeSystem) -> None:
    system = make_system("usadtm", task={"n_classes": 2, "n_features": 1, "n_labeled": 2})
    assert system.stored.shape == (2, 10, 1)
    system.store(torch.tensor([[1.0], [10.0], [3.0]]), torch.tensor([0, 1, 0]))
    assert system.templates().tolist() == [[2.0], [10.0]]
    for value in range(10):
        system.store(torch.tensor([[float(value)]]), torch.tensor([0]))
    assert system.templates()[0].item() == pytest.approx(4.5)  # 0 to 9; the first two have left


@pytest.fixture
def make_matching(make_system: MakeSystem) -> MakeSystem:
    """`make_matching(unlabeled_weight=3)`: templates (1, 0) and (0, 4); in step 50 of 1,024, an epoch each."""

    def make(**settings: object) -> Any:
        system = make_system("usadtm", n_joining=0, **settings, task={"n_classes": 2, "n_features": 2, "n_steps": 1024})
        for _ in range(LEAST_VIEWS + 1):
            system.store(torch.tensor([[1.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 1]))
        system.steps_seen.fill_(50)
        return system

    return make


@pytest.fixture
def matching(make_matching: MakeSystem) -> Any:
    return make_matching(aggregation_weight=0)


def test_both_distances_must_agree_and_be_near(matching: Any) -> None:
    features = torch.tensor(
        [
            [0.9, 0.1],  # near to the first in every way
            [0.0, 3.5],  # near to the second
            [0.0, 1.0],  # along the second, but nearer to the first: √2 against 3
            [1.0, 1.0],  # at 45 degrees: cosine .71
        ]
    )
    matched = matching.match(features)
    assert matched.label.tolist()[:3] == [0, 1, 1]
    assert matched.counts.tolist() == [True, True, False, False]
    matching.n_stored[1] = LEAST_VIEWS
    assert not matching.match(features).counts.any()


def test_losses_by_hand_without_representation_learning(
    matching: Any, make_batch: Callable[..., Any], learner: Any
) -> None:
    """Of three images two match: the mean of their cross-entropies on the strong view, log 4 and log 2."""
    rows = torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]]).log()
    features = [torch.tensor([[1.0, 0.0]]), torch.zeros(3, 2), torch.tensor([[0.9, 0.1], [0.0, 3.5], [1.0, 1.0]])]
    chosen = learner(torch.zeros(1, 2), rows, torch.zeros(3, 2), features=features)
    loss, metrics = matching.loss(make_batch(labels=[0], n_unlabeled=3), chosen)
    assert metrics["unlabeled_loss"].item() == pytest.approx(math.log(8) / 2)
    assert metrics["pseudo_label_rate"].item() == pytest.approx(2 / 3)
    assert loss.item() == pytest.approx(math.log(2) + math.log(8) / 2)
    assert (chosen.asked, chosen.n_targets) == (["weak", "strong", "weak"], 1)
    assert chosen.seen == ["L0 weak", "U0 strong, U1 strong, U2 strong", "U0 weak, U1 weak, U2 weak"]
    assert "aggregation_loss" not in metrics


def test_nothing_is_matched_before_epoch_two(matching: Any, make_batch: Callable[..., Any], learner: Any) -> None:
    """The authors' code starts matching at epoch 2 of 1,024, here step 2; templates are ready, the image is at one."""
    matching.steps_seen.zero_()
    template, strong = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.25, 0.75]]).log()  # of class 0: log 4
    losses = []
    for _ in range(4):
        chosen = learner(torch.zeros(1, 2), strong, torch.zeros(1, 2), features=[template, template, template])
        losses.append(matching.loss(make_batch(), chosen)[0].item())
    assert losses == pytest.approx([math.log(2)] * 2 + [math.log(2) + math.log(4)] * 2)


def test_all_terms_at_once_by_hand(make_matching: MakeSystem, make_batch: Callable[..., Any], learner: Any) -> None:
    # Both images match, and all three views of them say (.75, .25) and (.25, .75): strong views cost -log .75 each.
    # P = mean of p pᵀ = (5, 3; 3, 5) / 16 with marginals 1/2: I = 10/16 log(5/4) + 6/16 log(3/4), of every pair.
    # Labelled log 2.
    views = torch.tensor([[0.75, 0.25], [0.25, 0.75]]).log()
    features = [
        torch.tensor([[1.0, 0.0]]),
        torch.zeros(2, 2),
        torch.zeros(2, 2),
        torch.tensor([[0.9, 0.1], [0.0, 3.5]]),
    ]
    chosen = learner(torch.zeros(1, 2), views, views, views, features=features)
    system = make_matching(unlabeled_weight=3, aggregation_weight=0.5)
    loss, _ = system.loss(make_batch(n_unlabeled=2), chosen)
    information = 10 / 16 * math.log(5 / 4) + 6 / 16 * math.log(3 / 4)
    assert loss.item() == pytest.approx(math.log(2) - 3 * math.log(0.75) - 0.5 * information)
    assert (chosen.asked, chosen.n_targets) == (["weak", "strong", "weak"], 0)
    assert chosen.seen == ["L0 weak", "U0 strong, U1 strong", "U0, U1", "U0 weak, U1 weak"]


def test_representation_learning_adds_its_weighted_loss(
    make_system: MakeSystem, make_batch: Callable[..., Any], learner: Any
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = [torch.randn(n, 3, generator=generator) for n in (1, 5, 5, 5)]
    system = make_system("usadtm", n_joining=0)
    for step, weight in ((0, 0.0), (1, 0.0), (2, 0.1)):  # from epoch 20 of 1,024: after 1.95 of 100 steps
        chosen = learner(*logits, features=[torch.ones(n, 4) for n in (1, 5, 5, 5)])
        loss, metrics = system.loss(make_batch(n_unlabeled=5), chosen)
        expected = triplet_loss(logits[2], logits[3], logits[1])
        assert metrics["aggregation_loss"].item() == pytest.approx(expected.item())
        assert loss.item() == pytest.approx((metrics["labeled_loss"] + weight * expected).item()), step


def test_the_surest_of_each_class_join_the_labelled(make_system: MakeSystem) -> None:
    system = make_system("usadtm", n_joining=2, task={"n_classes": 2, "n_labeled": 4, "n_steps": 2048})
    system.steps_seen.fill_(100)
    labels, scores = torch.tensor([0, 0, 0, 1]), torch.tensor([0.5, 0.9, 0.7, 0.6])
    system.note_surest(labels, scores, torch.tensor([10, 11, 12, 13]))
    assert system.surest_position.tolist() == [[11, 12], [13, -1]]
    assert (system.joined == -1).all()  # the epoch, of two steps, is not over
    system.steps_seen.add_(1)
    system.note_surest(torch.tensor([1]), torch.tensor([0.8]), torch.tensor([14]))
    assert system.joined.tolist() == [[11, 12], [14, 13]]
    assert (system.surest_position == -1).all()

    every_image = torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1)
    blank, given = torch.zeros(4000, 1, 1, 1, dtype=torch.uint8), torch.full((4000,), 7)
    images, labels = system.join(blank, given, every_image.__getitem__, torch.Generator().manual_seed(0))
    assert set(zip(images.flatten().tolist(), labels.tolist(), strict=True)) == {
        (0, 7), (11, 0), (12, 0), (13, 1), (14, 1)
    }  # fmt: skip
    assert (labels != 7).float().mean().item() == pytest.approx(0.5, abs=0.03)  # four joined four


def test_nobody_joins_before_epoch_twenty(make_system: MakeSystem) -> None:
    """The authors' code lets images join from epoch 20 of 1,024, here of two steps each."""
    system = make_system("usadtm", n_joining=1, task={"n_classes": 2, "n_steps": 2048})
    begun = []
    for step in range(44):
        system.note_surest(torch.tensor([0]), torch.tensor([0.9]), torch.tensor([step]))
        system.steps_seen.add_(1)
        begun.append(bool((system.joined >= 0).any()))
    assert begun.index(True) == 41  # the last step of epoch 20


def test_nobody_joins_before_somebody_is_chosen(make_system: MakeSystem) -> None:
    system = make_system("usadtm")
    images, labels = torch.zeros(5, 1, 2, 2, dtype=torch.uint8), torch.arange(5) % 3
    same = system.join(images, labels, torch.ones(9, 1, 2, 2, dtype=torch.uint8).__getitem__, torch.Generator())
    assert torch.equal(same[0], images)
    assert torch.equal(same[1], labels)


def test_pseudo_labels_are_the_templates(matching: Any) -> None:
    labels, trusted = matching.pseudo_labels(torch.tensor([[0.1, 0.9]]), torch.tensor([[0.9, 0.1]]))
    assert (labels.tolist(), trusted.tolist()) == ([0], [True])


def test_without_matches_it_is_supervised(
    make_system: MakeSystem, make_batch: Callable[..., Any], learner: Any
) -> None:
    """The limit in which no template is near enough, and nothing is aggregated or joins."""
    system = make_system("usadtm", aggregation_weight=0, n_joining=0, least_cosine=1)
    logits = [torch.randn(n, 3, generator=torch.Generator().manual_seed(n)) for n in (2, 4, 4)]
    features = [torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) for n in (2, 4, 4)]
    loss, _ = system.loss(make_batch(labels=[0, 1], n_unlabeled=4), learner(*logits, features=features))
    assert loss.item() == pytest.approx(F.cross_entropy(logits[0], torch.tensor([0, 1])).item())


def test_published_settings(make_system: MakeSystem) -> None:
    """The authors' code: cosine .85, λ_u = 1, weight .1 of the mutual information, 4 joining a class at 40 labels; a
    template is of ten views per label, and none counts before each class has more than ten.
    """
    s = make_system("usadtm").settings
    assert (VIEWS_PER_LABEL, LEAST_VIEWS) == (10, 10)
    assert (s.least_cosine, s.unlabeled_weight, s.aggregation_weight, s.n_joining) == (0.85, 1, 0.1, 4)

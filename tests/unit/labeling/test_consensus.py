"""Pseudo-labels of all LFs together: the consensus by hand, its loss, its thresholds, the settings that go with it."""

import math

import pytest
import torch

from dpssl.config import LabelingConfig
from dpssl.errors import InputError
from dpssl.labeling.losses import consensus, consensus_loss, labeled_loss
from dpssl.labeling.objective import SemiSupervised
from dpssl.nets.lf_heads import LFNetwork
from dpssl.nets.wide_resnet import WideResNet

TAU = torch.tensor([[True, False], [True, False], [False, True]])  # two specialists of class 0, one of class 1


def test_every_class_counts_by_the_mean_of_its_specialists() -> None:
    # Class 0: (.8 + .4) / 2 = .6; class 1: .2 / 1. What an LF gives outside tau_k does not count.
    probabilities = torch.tensor([[[0.8, 0.1, 0.1], [0.4, 0.0, 0.6], [0.7, 0.2, 0.1]]])
    torch.testing.assert_close(consensus(probabilities, TAU), torch.tensor([[0.75, 0.25]]))


def test_a_class_without_specialists_and_an_image_without_claims_get_nothing() -> None:
    probabilities = torch.tensor([[[0.5, 0.5, 0.0]], [[0.0, 0.0, 1.0]]])
    found = consensus(probabilities, torch.tensor([[True, False]]))
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [0.0, 0.0]]))


def test_the_loss_is_eq_5_on_the_strong_view_where_the_consensus_is_sure() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, 3, generator=generator)
    labels, sure = torch.tensor([0, 1, 1, 0]), torch.tensor([True, False, True, True])
    expected = labeled_loss(logits, labels, TAU)
    expected[1] = 0
    torch.testing.assert_close(consensus_loss(logits, labels, sure, TAU), expected)


def make_objective(**settings: object) -> SemiSupervised:
    network = LFNetwork(WideResNet(10, 1, n_channels=1), n_lfs=3, n_classes=2, feature_transform=False)
    network.specialties.copy_(TAU)
    chosen = LabelingConfig(pseudo_labels="consensus", **settings)  # type: ignore[arg-type]
    return SemiSupervised(network, chosen, torch.full((2,), 0.5))


def masked(probabilities: list[list[float]]) -> torch.Tensor:
    """Logits (1, K, C + 1) of these probabilities."""
    return torch.tensor([probabilities]).clamp_min(1e-9).log()


def test_an_lf_that_is_unsure_learns_what_the_others_know() -> None:
    """LF 2 cannot tell; LFs 0 and 1 claim class 0, so LF 2 learns to abstain from the image."""
    objective = make_objective(confidence_threshold=0.6, labeled_weight=0.0)
    weak = masked([[0.99, 0, 0.01], [0.99, 0, 0.01], [0, 0.5, 0.5]])
    strong = torch.zeros(1, 3, 3, requires_grad=True)
    loss, metrics = objective.loss(torch.zeros(1, 3, 3), torch.tensor([0]), weak, strong)
    (gradient,) = torch.autograd.grad(loss, strong)
    assert metrics["pseudo_label_rate"] == 1
    assert gradient[0, 2, 2] < 0 < gradient[0, 2, 1]  # abstain up, class 1 down
    assert gradient[0, 0, 0] < 0


def test_below_the_threshold_nobody_learns() -> None:
    objective = make_objective(confidence_threshold=0.7, labeled_weight=0.0)
    weak = masked([[0.99, 0, 0.01], [0.99, 0, 0.01], [0, 0.5, 0.5]])  # .99 against .5: .66
    loss, metrics = objective.loss(torch.zeros(1, 3, 3), torch.tensor([0]), weak, torch.zeros(1, 3, 3))
    assert metrics["pseudo_label_rate"] == 0
    assert loss == 0


def test_the_curriculum_lets_everything_pass_at_first() -> None:
    """Nobody has been sure of anything, so no certainty is needed; the fixed threshold lets nothing pass."""
    weak = masked([[0.7, 0, 0.3], [0.7, 0, 0.3], [0, 0.2, 0.8]])
    for curriculum, passed in ((True, 1), (False, 0)):
        objective = make_objective(curriculum_threshold=curriculum)
        _, metrics = objective.loss(torch.zeros(1, 3, 3), torch.tensor([0]), weak, torch.zeros(1, 3, 3))
        assert metrics["pseudo_label_rate"] == passed


def test_own_pseudo_labels_have_a_curriculum_for_each_lf_and_outcome() -> None:
    network = LFNetwork(WideResNet(10, 1, n_channels=1), n_lfs=3, n_classes=2, feature_transform=False)
    network.specialties.copy_(TAU)
    objective = SemiSupervised(network, LabelingConfig(curriculum_threshold=True), torch.full((2,), 0.5))
    abstaining = masked([[0.01, 0, 0.99], [0.99, 0, 0.01], [0, 0.5, 0.5]])
    for _ in range(2000):
        objective.curriculum.adapt(torch.softmax(abstaining, -1))
    lf_0, lf_1, lf_2 = objective.curriculum.thresholds()
    assert lf_0[0] == lf_2[1] == 0, "what an LF is never sure of needs no certainty"
    assert lf_0[2].item() == lf_1[0].item() == pytest.approx(0.95)


def test_the_adaptive_threshold_lets_everything_pass_at_first_and_follows_the_confidence() -> None:
    objective = make_objective(adaptive_threshold=True)
    unsure = masked([[0.55, 0, 0.45], [0.55, 0, 0.45], [0, 0.5, 0.5]])
    sure = masked([[0.99, 0, 0.01], [0.99, 0, 0.01], [0, 0.01, 0.99]])
    flat, label = torch.zeros(1, 3, 3), torch.tensor([0])
    assert objective.loss(flat, label, unsure, flat)[1]["pseudo_label_rate"] == 1
    for _ in range(3000):
        objective.adaptive.adapt(consensus(torch.softmax(sure, -1), TAU))
    assert objective.loss(flat, label, unsure, flat)[1]["pseudo_label_rate"] == 0
    assert objective.loss(flat, label, sure, flat)[1]["pseudo_label_rate"] == 1
    assert math.isfinite(objective.loss(flat, label, sure, flat)[0].item())
    assert {"adaptive.threshold", "adaptive.mean_prediction"} <= set(objective.state_dict())


def test_a_limit_keeps_the_adaptive_threshold_from_letting_everything_pass() -> None:
    objective = make_objective(adaptive_threshold=True, least_threshold=0.9)
    unsure = masked([[0.55, 0, 0.45], [0.55, 0, 0.45], [0, 0.5, 0.5]])
    sure = masked([[0.99, 0, 0.01], [0.99, 0, 0.01], [0, 0.01, 0.99]])
    flat, label = torch.zeros(1, 3, 3), torch.tensor([0])
    assert objective.loss(flat, label, unsure, flat)[1]["pseudo_label_rate"] == 0
    assert objective.loss(flat, label, sure, flat)[1]["pseudo_label_rate"] == 1
    for most, passed in ((1.0, 0), (0.5, 1)):
        objective = make_objective(adaptive_threshold=True, most_threshold=most)
        objective.adaptive.threshold.fill_(0.9)
        assert objective.loss(flat, label, unsure, flat)[1]["pseudo_label_rate"] == passed


def test_thresholds_follow_what_the_setting_says() -> None:
    """Class 1 is named for one image in four, as surely as class 0: an unsure one of it passes only for its rarity."""
    sure, rare = [[0.9, 0, 0.1], [0.9, 0, 0.1], [0, 0.1, 0.9]], [[0.1, 0, 0.9], [0.1, 0, 0.9], [0, 0.9, 0.1]]
    unsure = masked([[0.4, 0, 0.6], [0.4, 0, 0.6], [0, 0.6, 0.4]])
    flat, label = torch.zeros(1, 3, 3), torch.tensor([0])
    for follow, passed in (("shares", 1), ("confidence", 0)):
        objective = make_objective(adaptive_threshold=True, thresholds_follow=follow)
        for _ in range(5000):
            objective.adaptive.adapt(consensus(torch.softmax(torch.cat([masked(sure)] * 3 + [masked(rare)]), -1), TAU))
        assert objective.loss(flat, label, unsure, flat)[1]["pseudo_label_rate"] == passed


def test_the_consensus_is_aligned_to_the_class_balance() -> None:
    """Class 0 is claimed for every image: after a while it has no more than its half."""
    weak = masked([[0.85, 0, 0.15], [0.85, 0, 0.15], [0, 0.15, 0.85]])
    flat, label = torch.zeros(1, 3, 3), torch.tensor([0])
    rates = []
    for alignment in (False, True):
        objective = make_objective(alignment=alignment, confidence_threshold=0.8)
        for _ in range(300):
            _, metrics = objective.loss(flat, label, weak, flat)
        rates.append(metrics["pseudo_label_rate"].item())
    assert rates == [1, 0]


def test_the_surest_come_first() -> None:
    """Of four images the surest is learnt from at first, all in the end; the fixed threshold still holds."""
    objective = make_objective(surest_first=0.5, steps=200, confidence_threshold=0.55)
    sure = [[0.99, 0, 0.01], [0.99, 0, 0.01], [0, 0.01, 0.99]]
    less = [[0.8, 0, 0.2], [0.8, 0, 0.2], [0, 0.2, 0.8]]
    unsure = [[0.6, 0, 0.4], [0.6, 0, 0.4], [0, 0.4, 0.6]]
    guess = [[0.5, 0, 0.5], [0.5, 0, 0.5], [0, 0.5, 0.5]]
    weak, flat = torch.cat([masked(p) for p in (unsure, sure, guess, less)]), torch.zeros(4, 3, 3)
    rates = [objective.loss(flat[:1], torch.tensor([0]), weak, flat)[1]["pseudo_label_rate"].item() for _ in range(120)]
    assert rates[0] == 0.25
    assert rates[50] == 0.75, "half of the rise: three of four"
    assert rates[-1] == 0.75, "all but the one below the threshold"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"surest_first": 0.5}, "--surest-first 0.5: only with --pseudo-labels consensus"),
        (
            {"least_threshold": 0.9, "most_threshold": 0.8},
            "--least-threshold 0.9: must be at most --most-threshold 0.8",
        ),
        ({"adaptive_threshold": True, "curriculum_threshold": True}, "--curriculum-threshold true: not with --adapt"),
        ({"sharpness_range": 0.5}, "--sharpness-range 0.5: must be 0 or at least 1"),
    ],
)
def test_settings_that_go_together(settings: dict[str, object], message: str) -> None:
    from dpssl.config import Config, with_values

    with pytest.raises(InputError, match=message):
        with_values(Config(), settings)

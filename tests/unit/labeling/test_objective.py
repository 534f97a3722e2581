"""Distribution alignment of each LF to its own prior, and the warm-up of Eq. 6."""

import pytest
import torch

from dpssl.config import LabelingConfig
from dpssl.labeling.objective import SemiSupervised, outcome_prior
from dpssl.nets.lf_heads import LFNetwork
from dpssl.nets.wide_resnet import WideResNet


def test_prior_is_the_balance_inside_tau_and_the_rest_to_abstain() -> None:
    tau = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    prior = outcome_prior(tau, torch.tensor([0.5, 0.3, 0.2]), abstains=True)
    expected = torch.tensor([[0.5, 0.0, 0.2, 0.3], [0.0, 0.0, 0.0, 1.0], [0.5, 0.3, 0.2, 0.0]])
    torch.testing.assert_close(prior, expected)


def test_prior_without_abstaining() -> None:
    prior = outcome_prior(torch.ones(2, 3, dtype=torch.bool), torch.full((3,), 1 / 3), abstains=False)
    torch.testing.assert_close(prior, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0]] * 2))


@pytest.fixture
def network() -> LFNetwork:
    return LFNetwork(WideResNet(10, 1, n_channels=1), n_lfs=1, n_classes=2, feature_transform=False)


def pseudo_label_rate(network: LFNetwork, alignment: bool, weak: torch.Tensor) -> float:
    settings = LabelingConfig(alignment=alignment, confidence_threshold=0.8)
    objective = SemiSupervised(network, settings, torch.full((2,), 0.5))
    logits = network.abstain_logits(torch.zeros(len(weak), 1, 3))
    labels = torch.zeros(len(weak), dtype=torch.long)
    for _ in range(2000):
        _, metrics = objective.loss(logits, labels, weak, logits)
    return metrics["pseudo_label_rate"].item()


def test_alignment_takes_trust_from_a_class_said_too_often(network: LFNetwork) -> None:
    """Class 0 at .85 on every image: sure by itself, but no more than its share of a half once aligned."""
    network.abstains = False
    weak = network.abstain_logits(torch.tensor([[[0.85, 0.15, 1e-9]]]).log().expand(4, 1, 3))
    assert pseudo_label_rate(network, False, weak) == 1
    assert pseudo_label_rate(network, True, weak) == 0


def test_running_predictions_are_saved_with_a_checkpoint(network: LFNetwork) -> None:
    objective = SemiSupervised(network, LabelingConfig(), torch.full((2,), 0.5))
    assert {"specialties", "prior", "mean_prediction"} <= set(objective.state_dict())


def test_eq_6_rises_to_its_weight_over_the_warm_up(network: LFNetwork) -> None:
    settings = LabelingConfig(unlabeled_warmup=4, confidence_threshold=0.8, labeled_weight=0.0)
    objective = SemiSupervised(network, settings, torch.full((2,), 0.5))
    weak = network.abstain_logits(torch.tensor([[[9.0, 0.0, 0.0]]]))
    flat = network.abstain_logits(torch.zeros(1, 1, 3))
    steps = [objective.loss(flat, torch.zeros(1, dtype=torch.long), weak, flat) for _ in range(6)]
    shares = [(loss / metrics["unlabeled_loss"]).item() for loss, metrics in steps]
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_while_heads_come_first_eq_6_does_not_count_and_the_backbone_rests(network: LFNetwork) -> None:
    settings = LabelingConfig(heads_first=2, unlabeled_warmup=2, confidence_threshold=0.8, labeled_weight=0.0)
    objective = SemiSupervised(network, settings, torch.full((2,), 0.5))
    weak = network.abstain_logits(torch.tensor([[[9.0, 0.0, 0.0]]]))
    flat = network.abstain_logits(torch.zeros(1, 1, 3))
    learns, shares = [], []
    for _ in range(5):
        learns.append(objective.backbone_learns().item())
        loss, metrics = objective.loss(flat, torch.zeros(1, dtype=torch.long), weak, flat)
        shares.append((loss / metrics["unlabeled_loss"]).item())
    assert learns == [0, 0, 1, 1, 1]
    assert shares == pytest.approx([0, 0, 0.5, 1, 1])

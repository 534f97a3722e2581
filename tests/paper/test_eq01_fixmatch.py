"""Eq. 1, FixMatch: L = 1(max p(y|weak) ≥ ε) · H(ŷ, p(y|strong)), the limit of Eq. 6 at K = 1 without abstaining."""

import math

import pytest
import torch

from dpssl.labeling.losses import unlabeled_loss
from dpssl.nets.lf_heads import LFNetwork
from dpssl.nets.wide_resnet import WideResNet
from dpssl.training.fixmatch import fixmatch_loss


def one_sample(weak: list[float], strong: list[float], threshold: float) -> float:
    """Eq. 1 for one sample, from the logits of both views."""
    p_weak = [math.exp(value) / sum(map(math.exp, weak)) for value in weak]
    p_strong = [math.exp(value) / sum(map(math.exp, strong)) for value in strong]
    pseudo_label = max(range(len(p_weak)), key=p_weak.__getitem__)
    return -math.log(p_strong[pseudo_label]) if p_weak[pseudo_label] >= threshold else 0.0


@pytest.fixture
def lone_lf() -> LFNetwork:
    """K = 1, tau_1 = every class, the abstain output masked."""
    network = LFNetwork(WideResNet(10, 1, n_channels=1), n_lfs=1, n_classes=4, feature_transform=False)
    network.abstains = False
    return network


@pytest.mark.parametrize("abstain_view", ["strong", "weak"])
def test_one_lf_that_cannot_abstain_is_fixmatch(lone_lf: LFNetwork, abstain_view: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weak_raw, strong_raw = 4 * torch.randn(2, 50, 1, 5, generator=generator, dtype=torch.float64)
    weak, strong = lone_lf.abstain_logits(weak_raw), lone_lf.abstain_logits(strong_raw)
    loss, _, sure = unlabeled_loss(weak.softmax(-1), weak, strong, 0.8, abstain_view)
    expected = [
        one_sample(w, s, 0.8) for w, s in zip(weak_raw[:, 0, :4].tolist(), strong_raw[:, 0, :4].tolist(), strict=True)
    ]
    assert 5 < sure.sum() < 45  # both sides of the threshold are there
    assert loss.tolist() == pytest.approx(expected)


def test_the_loss_of_the_baselines_is_eq_1() -> None:
    generator = torch.Generator().manual_seed(0)
    weak, strong = 4 * torch.randn(2, 50, 4, generator=generator, dtype=torch.float64)
    loss, sure = fixmatch_loss(weak.softmax(-1), strong, 0.8)
    assert loss.tolist() == pytest.approx(
        [one_sample(w, s, 0.8) for w, s in zip(weak.tolist(), strong.tolist(), strict=True)]
    )
    assert 5 < sure.sum() < 45
    own = torch.linspace(0, 1, 50, dtype=torch.float64)  # a threshold for each image
    rows = zip(weak.tolist(), strong.tolist(), own.tolist(), strict=True)
    assert fixmatch_loss(weak.softmax(-1), strong, own)[0].tolist() == pytest.approx([one_sample(*row) for row in rows])


def test_by_hand() -> None:
    # weak p = (.75, .25), so ŷ = 0; strong p = (.2, .8): H = log 5, or nothing above ε = .75.
    weak = torch.tensor([[[0.75, 0.25, 0.0]]])
    strong = torch.tensor([[[0.2, 0.8, 1e-9]]]).log()
    assert unlabeled_loss(weak, weak.log(), strong, 0.7)[0].item() == pytest.approx(math.log(5))
    assert unlabeled_loss(weak, weak.log(), strong, 0.8)[0].item() == 0


def test_the_threshold_itself_is_enough() -> None:
    weak = torch.tensor([[[0.75, 0.25, 0.0]]])
    _, _, sure = unlabeled_loss(weak, weak.log(), torch.zeros(1, 1, 3), 0.75)
    assert sure.all()

"""Eq. 6: L_u = Σ_k 1(max p̄_k(weak) ≥ ε) [1(ŷ ∈ τ_k) H(ŷ, p̄_k(strong)) + 1(ŷ = 0) H(0, p̄_k(view))].

The view of the abstain term is printed as weak; strong is the other reading.
"""

import math

import pytest
import torch
from torch import Tensor

from dpssl.labeling.losses import unlabeled_loss
from dpssl.nets.lf_heads import LFNetwork
from dpssl.nets.wide_resnet import WideResNet

THRESHOLD = 0.7
TAU = torch.tensor([[True, False, True], [False, True, False], [True, True, True]])


@pytest.fixture
def views() -> tuple[Tensor, Tensor]:
    """Raw logits (B, K, C + 1) of the weak and the strong view, with abstaining common and sure in both."""
    generator = torch.Generator().manual_seed(6)
    raw = 3 * torch.randn(2, 40, 3, 4, generator=generator, dtype=torch.float64)
    return raw[0], raw[1]


@pytest.fixture
def network() -> LFNetwork:
    network = LFNetwork(WideResNet(10, 1, n_channels=1), n_lfs=3, n_classes=3, feature_transform=False)
    network.specialties.copy_(TAU)
    return network


def p_bar(raw: Tensor, tau: Tensor) -> dict[int, float]:
    """p̄_k over τ_k and abstain (the last column) from raw logits (C + 1,)."""
    allowed = [*tau.nonzero().flatten().tolist(), len(tau)]
    total = sum(math.exp(raw[c]) for c in allowed)
    return {c: math.exp(raw[c]) / total for c in allowed}


def unlabeled_loss_by_the_book(weak: Tensor, strong: Tensor, abstain_view: str) -> float:
    """Eq. 6 for one sample, raw logits (K, C + 1) of both views."""
    total = 0.0
    for k in range(len(TAU)):
        on_weak, on_strong = p_bar(weak[k], TAU[k]), p_bar(strong[k], TAU[k])
        pseudo_label = max(on_weak, key=on_weak.__getitem__)
        if on_weak[pseudo_label] < THRESHOLD:
            continue
        if pseudo_label < TAU.shape[1]:
            total -= math.log(on_strong[pseudo_label])
        else:
            total -= math.log({"weak": on_weak, "strong": on_strong}[abstain_view][pseudo_label])
    return total


@pytest.mark.parametrize("abstain_view", ["weak", "strong"])
def test_equals_the_slow_loop(network: LFNetwork, views: tuple[Tensor, Tensor], abstain_view: str) -> None:
    weak, strong = map(network.abstain_logits, views)
    loss, pseudo_labels, sure = unlabeled_loss(weak.softmax(-1), weak, strong, THRESHOLD, abstain_view)
    expected = [unlabeled_loss_by_the_book(w, s, abstain_view) for w, s in zip(*views, strict=True)]
    assert loss.tolist() == pytest.approx(expected)
    for kind in (sure & (pseudo_labels == 3), sure & (pseudo_labels < 3), ~sure):
        assert kind.sum() > 5


@pytest.mark.parametrize(("abstain_view", "abstain_term"), [("weak", -math.log(0.8)), ("strong", math.log(4))])
def test_by_hand(abstain_view: str, abstain_term: float) -> None:
    # Columns: the only class, and abstain. LF 1 says the class (.9), LF 2 abstains (.8), LF 3 is unsure (.6).
    weak = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]])
    strong = torch.tensor([[[0.5, 0.5], [0.75, 0.25], [0.1, 0.9]]])
    loss, pseudo_labels, sure = unlabeled_loss(weak, weak.log(), strong.log(), THRESHOLD, abstain_view)
    assert loss.item() == pytest.approx(math.log(2) + abstain_term)
    assert pseudo_labels.tolist() == [[0, 1, 0]]
    assert sure.tolist() == [[True, True, False]]


def test_nobody_sure_is_no_loss(network: LFNetwork, views: tuple[Tensor, Tensor]) -> None:
    weak, strong = map(network.abstain_logits, views)
    loss, _, sure = unlabeled_loss(weak.softmax(-1), weak, strong, 1.1)
    assert not sure.any()
    assert (loss == 0).all()


def test_as_printed_a_sure_abstention_costs_next_to_nothing(network: LFNetwork) -> None:
    weak = network.abstain_logits(torch.tensor([[[0.0, 0.0, 0.0, 8.0]] * 3]))
    strong = network.abstain_logits(torch.zeros(1, 3, 4))
    printed, _, _ = unlabeled_loss(weak.softmax(-1), weak, strong, 0.95, "weak")
    ours, _, _ = unlabeled_loss(weak.softmax(-1), weak, strong, 0.95, "strong")
    assert printed.item() < 3 * -math.log(0.95)
    assert ours.item() == pytest.approx(math.log(3) + math.log(2) + math.log(4))


@pytest.mark.parametrize("abstain_view", ["weak", "strong"])
def test_which_view_learns(network: LFNetwork, views: tuple[Tensor, Tensor], abstain_view: str) -> None:
    weak_raw, strong_raw = (view.requires_grad_() for view in views)
    weak, strong = network.abstain_logits(weak_raw), network.abstain_logits(strong_raw)
    loss, pseudo_labels, sure = unlabeled_loss(weak.detach().softmax(-1), weak, strong, THRESHOLD, abstain_view)
    on_weak, on_strong = torch.autograd.grad(
        loss.sum(), (weak_raw, strong_raw), allow_unused=True, materialize_grads=True
    )
    through_weak = sure & (pseudo_labels == 3) & (abstain_view == "weak")
    assert torch.equal(on_weak.abs().sum(-1) > 0, through_weak)
    assert torch.equal(on_strong.abs().sum(-1) > 0, sure & ~through_weak)


@pytest.mark.parametrize("abstain_view", ["weak", "strong"])
def test_gradient(network: LFNetwork, views: tuple[Tensor, Tensor], abstain_view: str) -> None:
    targets = network.abstain_logits(views[0]).softmax(-1)

    def loss(weak: Tensor, strong: Tensor) -> Tensor:
        weak, strong = network.abstain_logits(weak), network.abstain_logits(strong)
        return unlabeled_loss(targets, weak, strong, THRESHOLD, abstain_view)[0]

    assert torch.autograd.gradcheck(loss, tuple(view.requires_grad_() for view in views))

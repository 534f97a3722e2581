import pytest
import torch
from torch import nn

from dpssl.nets.lf_heads import LFHeads, LFNetwork, initialize_heads
from dpssl.nets.wide_resnet import WideResNet, initialize


@pytest.fixture
def network() -> LFNetwork:
    generator = torch.Generator().manual_seed(0)
    network = LFNetwork(WideResNet(10, 1, n_channels=1), n_lfs=4, n_classes=3)
    initialize(network.backbone, generator)
    initialize_heads(network.heads, generator)
    with torch.no_grad():
        network.pooling.centers.normal_(std=0.3, generator=generator)
    return network


def test_one_batched_layer_equals_k_separate_ones() -> None:
    generator = torch.Generator().manual_seed(1)
    heads = LFHeads(n_lfs=5, n_features=7, n_outputs=4)
    with torch.no_grad():
        heads.weight.normal_(generator=generator)
        heads.bias.normal_(generator=generator)
    lf_features = torch.randn(6, 5, 7, generator=generator)
    logits = heads(lf_features)
    for k in range(5):
        separate = nn.functional.linear(lf_features[:, k], heads.weight[k].t(), heads.bias[k])
        torch.testing.assert_close(logits[:, k], separate)


def test_an_lf_s_loss_reaches_no_other_lf() -> None:
    heads = LFHeads(3, 4, 2)
    initialize_heads(heads, torch.Generator().manual_seed(2))
    lf_features = torch.ones(2, 3, 4, requires_grad=True)
    heads(lf_features)[:, 1].sum().backward()
    for gradient in (heads.weight.grad, heads.bias.grad, lf_features.grad.transpose(0, 1)):
        assert (gradient[1] != 0).any()
        assert (gradient[[0, 2]] == 0).all()


def test_every_lf_has_one_output_a_class_and_one_to_abstain(network: LFNetwork) -> None:
    images = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    assert network.lf_features(images).shape == (2, 4, 64)
    assert network(images).shape == (2, 4, 4)
    assert network.n_classes == 3


def test_heads_start_small_and_different(network: LFNetwork) -> None:
    logits = network(torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(4)))
    assert logits.std() < 0.5
    assert (network.heads.bias == 0).all()
    assert torch.unique(network.heads.weight, dim=0).shape[0] == 4


def test_classes_outside_tau_have_no_probability(network: LFNetwork) -> None:
    tau = torch.tensor([[True, False, True], [False, False, False], [True, True, True], [False, True, False]])
    network.specialties.copy_(tau)
    logits = torch.randn(5, 4, 4, generator=torch.Generator().manual_seed(5))
    p_bar = network.abstain_logits(logits).softmax(-1)
    torch.testing.assert_close(p_bar.sum(-1), torch.ones(5, 4))
    assert torch.equal(p_bar[..., :3] > 0, tau.expand(5, 4, 3))
    assert (p_bar[:, 1, 3] == 1).all()  # a dead LF only abstains
    inside = torch.cat([tau, torch.ones(4, 1, dtype=torch.bool)], 1).expand_as(logits)
    assert torch.equal(network.abstain_logits(logits)[inside], logits[inside])


def test_switched_off_abstaining_has_no_probability(network: LFNetwork) -> None:
    network.abstains = False
    p_bar = network.abstain_logits(torch.full((1, 4, 4), 5.0)).softmax(-1)
    assert (p_bar[..., 3] == 0).all()
    torch.testing.assert_close(p_bar[..., :3], torch.full((1, 4, 3), 1 / 3))


def test_the_gradient_scale_acts_on_the_backbone_alone(network: LFNetwork) -> None:
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(6))

    def gradients(scale: float) -> dict[str, torch.Tensor]:
        network.gradient_scale = scale
        names, parameters = zip(*network.named_parameters(), strict=True)
        loss = network.eval()(images)[..., 0].square().sum()
        return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))

    plain, scaled = gradients(1.0), gradients(0.25)
    for name, gradient in plain.items():
        factor = 0.25 if name.startswith("backbone.") else 1.0
        torch.testing.assert_close(scaled[name], factor * gradient)


def test_specialised_sets_are_saved_with_the_network(network: LFNetwork) -> None:
    network.specialties[1] = False
    other = LFNetwork(WideResNet(10, 1, n_channels=1), n_lfs=4, n_classes=3)
    other.load_state_dict(network.state_dict())
    assert torch.equal(other.specialties, network.specialties)

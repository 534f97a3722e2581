"""One step of our loop against FixMatch as its paper describes it, on one shared batch, in float64.

The reference is written from the published description (Sohn et al. 2020, Sec. 2 and Appendix B): cross-entropy on the
labelled weak views, a thresholded hard pseudo-label of the weak view as the target of the strong view, one joint
forward pass, SGD with Nesterov momentum and L2 decay, and an exponential moving average of the weights.
"""

import copy

import pytest
import torch
from torch.nn import functional as F

from dpssl.config import LabelingConfig
from dpssl.labeling.objective import SemiSupervised
from dpssl.nets.lf_heads import LFNetwork, initialize_heads
from dpssl.nets.wide_resnet import WideResNet, initialize
from dpssl.training.optim import FlatSGD

N_LABELED, N_UNLABELED, N_CLASSES = 6, 12, 4
MOMENTUM, DECAY, EMA, RATE = 0.9, 5e-4, 0.99, 0.03
THRESHOLD = 0.6  # at random weights few predictions reach .95; this one splits the batch


@pytest.fixture
def network() -> LFNetwork:
    generator = torch.Generator().manual_seed(0)
    net = LFNetwork(WideResNet(10, 1, (1, 2, 2), n_channels=3), n_lfs=1, n_classes=N_CLASSES, feature_transform=False)
    net.abstains = False
    initialize(net.backbone, generator)
    initialize_heads(net.heads, generator)
    net.heads.weight.data.mul_(20)  # so that predictions differ from one image to the next
    return net.double().train()


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    views = torch.randn(N_LABELED + 2 * N_UNLABELED, 3, 16, 16, dtype=torch.float64, generator=generator)
    return views, torch.randint(N_CLASSES, (N_LABELED,), generator=generator)


def reference_losses(
    net: LFNetwork, views: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    pooled = net.backbone(views).mean((2, 3))
    logits = (pooled @ net.heads.weight[0] + net.heads.bias[0])[:, :N_CLASSES]
    weak, strong = logits[N_LABELED : N_LABELED + N_UNLABELED], logits[N_LABELED + N_UNLABELED :]
    supervised = F.cross_entropy(logits[:N_LABELED], labels)
    confidence, targets = torch.softmax(weak.detach(), 1).max(1)
    mask = (confidence >= THRESHOLD).double()
    unsupervised = (F.cross_entropy(strong, targets, reduction="none") * mask).mean()
    return logits, supervised, unsupervised, mask


def our_losses(
    net: LFNetwork, views: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    objective = SemiSupervised(
        net, LabelingConfig(n_lfs=1, mcl=False, confidence_threshold=THRESHOLD), torch.full((N_CLASSES,), 0.25)
    ).double()
    logits = net(views)
    parts = torch.split(net.abstain_logits(logits), [N_LABELED, N_UNLABELED, N_UNLABELED])
    _, metrics = objective.loss(parts[0], labels, parts[1], parts[2])
    return logits[:, 0, :N_CLASSES], metrics["labeled_loss"], metrics["unlabeled_loss"], metrics["pseudo_label_rate"]


def test_logits_and_loss_terms_agree(network: LFNetwork, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, supervised, unsupervised, mask = reference_losses(copy.deepcopy(network), *batch)
    ours = our_losses(network, *batch)
    assert 0 < mask.mean() < 1, "the batch must have both sure and unsure images, or the mask is not tested"
    torch.testing.assert_close(ours[0], logits)
    torch.testing.assert_close(ours[1], supervised)
    torch.testing.assert_close(ours[2], unsupervised)
    assert ours[3].item() == pytest.approx(mask.mean().item())


def test_gradients_weights_and_average_agree_over_three_steps(
    network: LFNetwork, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    reference = copy.deepcopy(network)
    named = dict(reference.named_parameters())
    decayed = [p for name, p in named.items() if p.ndim >= 2 and not name.endswith("bias")]
    rest = [p for name, p in named.items() if p.ndim < 2 or name.endswith("bias")]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0.0}]
    sgd = torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, nesterov=True)
    average = {name: parameter.detach().clone() for name, parameter in named.items()}

    optimizer = FlatSGD(network, MOMENTUM, DECAY, EMA, undecayed=("bias",))
    optimizer.learning_rate.fill_(RATE)
    for _ in range(3):
        _, supervised, unsupervised, _ = reference_losses(reference, *batch)
        sgd.zero_grad()
        (supervised + unsupervised).backward()
        sgd.step()
        for name, parameter in named.items():
            average[name].mul_(EMA).add_(parameter.detach(), alpha=1 - EMA)

        _, supervised, unsupervised, _ = our_losses(network, *batch)
        gradients = torch.autograd.grad(supervised + unsupervised, optimizer.parameters)
        for gradient, parameter in zip(gradients, named.values(), strict=True):
            torch.testing.assert_close(gradient, parameter.grad)
        optimizer.step(gradients)

    for ours, theirs in zip(network.parameters(), named.values(), strict=True):
        torch.testing.assert_close(ours.detach(), theirs.detach())
    optimizer.use_average()
    for ours, theirs in zip(network.parameters(), average.values(), strict=True):
        torch.testing.assert_close(ours.detach(), theirs)

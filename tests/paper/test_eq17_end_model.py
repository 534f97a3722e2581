"""Eq. 17, the end model's noise-aware risk: L = Σ_l H(y, p(y|x_l)) + Σ_u E_{y~π} H(y, p(y|x_u))."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from dpssl.config import Config, with_values
from dpssl.data.batches import ImageBank
from dpssl.end_model.losses import labeled_risk, noise_aware_risk
from dpssl.end_model.predict import embed, predict_probabilities
from dpssl.end_model.train import build_classifier, train_end_model
from dpssl.errors import InputError
from dpssl.nets.classifier import Classifier
from dpssl.training.watch import Watch


def random_batch(seed: int) -> tuple[Tensor, Tensor]:
    """Logits and soft labels, (B, C) each."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    return logits, torch.randn(8, 4, generator=generator, dtype=torch.float64).softmax(-1)


def test_equals_the_expectation_over_pi() -> None:
    logits, soft_labels = random_batch(0)
    risk = noise_aware_risk(logits, soft_labels)
    for b in range(8):
        p = [math.exp(value) / sum(map(math.exp, logits[b])) for value in logits[b]]
        expected = sum(soft_labels[b, y].item() * -math.log(p[y]) for y in range(4))
        assert risk[b].item() == pytest.approx(expected)


def test_by_hand() -> None:
    # p = (1/2, 1/4, 1/4), π = (.5, .5, 0): ½ log 2 + ½ log 4 = 1.5 log 2.
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
    assert noise_aware_risk(logits, torch.tensor([[0.5, 0.5, 0.0]])).item() == pytest.approx(1.5 * math.log(2))
    assert labeled_risk(logits, torch.tensor([0])).item() == pytest.approx(math.log(2))


def test_a_certain_soft_label_is_a_label() -> None:
    logits, _ = random_batch(1)
    labels = torch.arange(8) % 4
    one_hot = nn.functional.one_hot(labels, 4).double()
    torch.testing.assert_close(noise_aware_risk(logits, one_hot), labeled_risk(logits, labels))


def test_smallest_where_the_model_says_pi() -> None:
    logits, soft_labels = random_batch(2)
    entropy = -(soft_labels * soft_labels.log()).sum(-1)
    torch.testing.assert_close(noise_aware_risk(soft_labels.log(), soft_labels), entropy)
    assert (noise_aware_risk(logits, soft_labels) > entropy).all()


def test_gradient() -> None:
    logits, soft_labels = random_batch(3)
    assert torch.autograd.gradcheck(lambda x: noise_aware_risk(x, soft_labels), (logits.requires_grad_(),))
    assert torch.autograd.gradcheck(lambda x: labeled_risk(x, torch.arange(8) % 4), (logits.requires_grad_(),))


# Training


@pytest.fixture(scope="module")
def digits() -> tuple[ImageBank, Tensor, Tensor]:
    """Zeros, ones and twos with their truth; the first two of each class keep their label."""
    images, truth = load_digits(n_class=3, return_X_y=True)
    stored = (images.reshape(-1, 8, 8, 1) * 255 / 16).astype(np.uint8)[:150]
    truth = torch.from_numpy(truth[:150]).long()
    given = torch.full((150,), -1)
    for label in range(3):
        given[(truth == label).nonzero().flatten()[:2]] = label
    return ImageBank.from_numpy(stored, torch.device("cpu")), given, truth


def tiny_config(**values: object) -> Config:
    small = {
        "depth": 10, "width": 1, "flip": False, "bn_momentum": 0.1, "ema_decay": 0.9, "window": 10,
        "end_steps": 20, "end_batch_size": 6, "end_unlabeled_ratio": 3, "end_view": "weak",
    }  # fmt: skip
    return with_values(Config(), {**small, **values})


def quiet() -> Watch:
    return Watch(progress=False)


def test_learns_from_soft_labels(digits: tuple[ImageBank, Tensor, Tensor]) -> None:
    bank, given, truth = digits
    soft_labels = nn.functional.one_hot(truth, 3).float() * 0.8 + 0.2 / 3
    covered = torch.ones(150, dtype=torch.bool)
    network = train_end_model(bank, given, soft_labels, covered, tiny_config(end_steps=60), quiet())
    assert not network.training
    probabilities = predict_probabilities(network, bank)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(150))
    assert (probabilities.argmax(1) == truth).float().mean() > 0.9
    # Soft labels of 87 % pull the confidence towards 87 %, not to certainty.
    assert 0.6 < probabilities.amax(1).mean() < 0.97


def test_both_terms_are_logged_and_added(digits: tuple[ImageBank, Tensor, Tensor]) -> None:
    bank, given, truth = digits
    seen: list[dict[str, float]] = []

    class Witness(Watch):
        def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
            seen.append(dict(metrics))

    soft_labels = nn.functional.one_hot(truth, 3).float()
    covered = torch.ones(150, dtype=torch.bool)
    train_end_model(bank, given, soft_labels, covered, tiny_config(), Witness(progress=False))
    assert len(seen) == 2
    for metrics in seen:
        assert metrics["loss"] == pytest.approx(metrics["labeled_loss"] + metrics["soft_loss"])


def test_images_without_a_vote_are_left_out_or_at_the_prior(digits: tuple[ImageBank, Tensor, Tensor]) -> None:
    """Uncovered rows of NaN never reach the loss when they are skipped."""
    bank, given, truth = digits
    covered = torch.arange(150) % 2 == 0
    soft_labels = nn.functional.one_hot(truth, 3).float()
    poisoned = torch.where(covered.unsqueeze(1), soft_labels, torch.nan)
    skipped = train_end_model(bank, given, poisoned, covered, tiny_config(), quiet())
    assert torch.isfinite(predict_probabilities(skipped, bank)).all()
    prior = torch.where(covered.unsqueeze(1), soft_labels, 1 / 3)
    trained = train_end_model(bank, given, prior, covered, tiny_config(end_uncovered="prior"), quiet())
    assert not torch.equal(trained.head.weight, skipped.head.weight)


def test_nothing_covered_is_an_error(digits: tuple[ImageBank, Tensor, Tensor]) -> None:
    bank, given, _ = digits
    with pytest.raises(InputError, match="no image has a vote"):
        train_end_model(
            bank, given, torch.full((150, 3), 1 / 3), torch.zeros(150, dtype=torch.bool), tiny_config(), quiet()
        )


def test_starts_from_given_weights(digits: tuple[ImageBank, Tensor, Tensor]) -> None:
    bank, given, truth = digits
    start = build_classifier(tiny_config(), 3, 1).backbone
    with torch.no_grad():
        start.stem.weight.fill_(0.123)
    network = train_end_model(
        bank,
        given,
        nn.functional.one_hot(truth, 3).float(),
        torch.ones(150, dtype=torch.bool),
        tiny_config(ema_decay=1.0, end_steps=1),  # the average stays at the start
        quiet(),
        backbone_start=start.state_dict(),
    )
    torch.testing.assert_close(network.backbone.stem.weight, torch.full_like(start.stem.weight, 0.123))


class OneConvolution(nn.Module):
    n_features = 5

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 5, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.convolution(images)


def test_any_backbone_will_do(digits: tuple[ImageBank, Tensor, Tensor]) -> None:
    bank, given, truth = digits
    soft_labels = nn.functional.one_hot(truth, 3).float()
    covered = torch.ones(150, dtype=torch.bool)
    network = train_end_model(bank, given, soft_labels, covered, tiny_config(), quiet(), backbone=OneConvolution())
    assert embed(network, bank).shape == (150, 5)
    assert predict_probabilities(network, bank).shape == (150, 3)


def test_logits_are_the_head_on_the_averaged_feature_map() -> None:
    network = Classifier(OneConvolution(), 3)
    images = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    pooled = network.backbone(images).mean((2, 3))
    torch.testing.assert_close(network.features(images), pooled)
    torch.testing.assert_close(network(images), pooled @ network.head.weight.t() + network.head.bias)


def test_the_same_seed_gives_the_same_bytes(digits: tuple[ImageBank, Tensor, Tensor]) -> None:
    bank, given, truth = digits
    soft_labels, covered = nn.functional.one_hot(truth, 3).float(), torch.ones(150, dtype=torch.bool)
    first, again = (
        train_end_model(bank, given, soft_labels, covered, tiny_config(end_view="strong"), quiet()).state_dict()
        for _ in range(2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)

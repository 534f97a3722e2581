"""Π-Model, Mean Teacher, Pseudo-Labeling: their terms by hand, and what each becomes in a limit."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dpssl.baselines.system import Learner
from dpssl.baselines.trainer import start
from dpssl.data.batches import ImageBank, LabeledImages
from dpssl.nets.fused_resnet import train_pass
from dpssl.nets.wide_resnet import WideResNet
from dpssl.training.optim import FlatSGD

MakeSystem = Callable[..., Any]


def log(*probabilities: float) -> list[float]:
    return [math.log(p) for p in probabilities]


def chosen_views(learner: Any, method: str, labeled: torch.Tensor, student: torch.Tensor, target: torch.Tensor) -> Any:
    """Where the target comes from: Π-Model the joint pass, Mean Teacher the teacher, Pseudo-Labeling the student."""
    match method:
        case "pi-model":
            return learner(labeled, student, target)
        case "mean-teacher":
            return learner(labeled, student, teacher=[target])
        case _:
            return learner(labeled, student)


@pytest.mark.parametrize("method", ["pi-model", "mean-teacher"])
def test_consistency_by_hand(
    make_system: MakeSystem, make_batch: Callable[..., Any], learner: Any, method: str
) -> None:
    # H(0, (.5, .25, .25)) = log 2; (.2 - .5)² and (.5 - .2)² over three classes is .06, of the other image 0: the mean
    # is .03. No ramp: full weight.
    alike = log(0.6, 0.2, 0.2)
    rows = [log(0.5, 0.25, 0.25)], [log(0.2, 0.5, 0.3), alike], [log(0.5, 0.2, 0.3), alike]
    chosen = chosen_views(learner, method, *map(torch.tensor, rows))
    loss, metrics = make_system(method, unlabeled_weight=7, ramp=0).loss(make_batch(n_unlabeled=2), chosen)
    assert metrics["labeled_loss"].item() == pytest.approx(math.log(2))
    assert metrics["unlabeled_loss"].item() == pytest.approx(0.03)
    assert loss.item() == pytest.approx(math.log(2) + 7 * 0.03)
    assert chosen.asked == ["weak"] * 3
    assert chosen.seen == ["L0 weak", "U0 weak, U1 weak", "U0 weak, U1 weak"]


@pytest.mark.parametrize(("method", "weight"), [("pi-model", 10), ("mean-teacher", 50), ("pseudo-label", 1)])
def test_published_weight_and_ramp(
    make_system: MakeSystem, make_batch: Callable[..., Any], learner: Any, method: str, weight: float
) -> None:
    """FixMatch's code: consistency_weight 10, 50 and 1, reached at warmup_pos = .4 of training."""
    system = make_system(method)
    unsupervised_share = []
    for _ in range(60):  # of 100 steps
        rows = torch.zeros(1, 3), torch.tensor([[9.0, 0, 0]]), torch.tensor([[0, 9.0, 0]])
        chosen = chosen_views(learner, method, *rows)
        loss, metrics = system.loss(make_batch(), chosen)
        unsupervised_share.append(((loss - metrics["labeled_loss"]) / metrics["unlabeled_loss"]).item())
    assert unsupervised_share[0] == pytest.approx(0, abs=1e-4)
    assert unsupervised_share[20] == pytest.approx(weight / 2, rel=1e-3)
    assert unsupervised_share[40:] == pytest.approx([weight] * 20, rel=1e-3)


@pytest.mark.parametrize("method", ["pi-model", "mean-teacher"])
def test_equal_predictions_cost_nothing(
    make_system: MakeSystem, make_batch: Callable[..., Any], learner: Any, method: str
) -> None:
    view = torch.randn(1, 3, generator=torch.Generator().manual_seed(0))
    chosen = chosen_views(learner, method, torch.zeros(1, 3), view, view.clone())
    _, metrics = make_system(method).loss(make_batch(), chosen)
    assert metrics["unlabeled_loss"].item() == 0


def test_teacher_of_decay_zero_is_the_student(
    digits: tuple[ImageBank, torch.Tensor], tiny_config: Callable[..., Any]
) -> None:
    """Mean Teacher with an average of decay 0 is consistency with itself; with decay .9 its teacher lags behind."""
    bank, given = digits
    for decay, is_student in ((0.0, True), (0.9, False)):
        config = tiny_config("mean-teacher", ema_decay=decay)
        network, _ = start(config, 3, bank, LabeledImages.of(given))
        optimizer = FlatSGD(network, 0.9, 0.0, decay)
        optimizer.learning_rate.fill_(0.5)
        optimizer.step([torch.randn(p.shape, generator=torch.Generator().manual_seed(0)) for p in optimizer.parameters])
        learner = Learner(network, lambda o=optimizer, n=network: o.averaged(n), bank, config, torch.Generator())
        running = {name: buffer.clone() for name, buffer in network.named_buffers()}
        teacher = learner.teacher_logits(bank.images[:20])
        assert all(torch.equal(buffer, running[name]) for name, buffer in network.named_buffers())
        guess = learner.guess_logits(bank.images[:20])
        assert not teacher.requires_grad
        assert not guess.requires_grad
        assert torch.equal(teacher, guess) == is_student
        torch.testing.assert_close(guess, learner.logits(bank.images[:20])[0].detach())


def test_the_fused_pass_of_a_gpu_takes_the_teachers_weights(
    digits: tuple[ImageBank, torch.Tensor], tiny_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the network trains through nets.fused_resnet; lent weights and statistics must reach that too."""
    bank, given = digits
    config = tiny_config("mean-teacher")
    network, _ = start(config, 3, bank, LabeledImages.of(given))
    averaged = {name: 0.9 * parameter.detach() + 0.01 for name, parameter in network.named_parameters()}
    learner = Learner(network, lambda: averaged, bank, config, torch.Generator())
    expected = learner.teacher_logits(bank.images[:20])
    running = {name: buffer.clone() for name, buffer in network.named_buffers()}
    monkeypatch.setattr(WideResNet, "forward", train_pass)
    torch.testing.assert_close(learner.teacher_logits(bank.images[:20]), expected)
    assert all(torch.equal(buffer, running[name]) for name, buffer in network.named_buffers())


def test_pseudo_label_by_hand(make_system: MakeSystem, make_batch: Callable[..., Any], learner: Any) -> None:
    # .8 is sure and costs -log .8; .6 is not. The mean is over both, and its weight 4.
    chosen = learner(torch.zeros(1, 3), torch.tensor([log(0.1, 0.8, 0.1), log(0.6, 0.2, 0.2)]))
    system = make_system("pseudo-label", threshold=0.7, ramp=0, unlabeled_weight=4)
    loss, metrics = system.loss(make_batch(n_unlabeled=2), chosen)
    assert metrics["unlabeled_loss"].item() == pytest.approx(-math.log(0.8) / 2)
    assert metrics["pseudo_label_rate"].item() == 0.5
    assert loss.item() == pytest.approx(math.log(3) - 4 * math.log(0.8) / 2)
    assert chosen.asked == ["weak", "weak"]


def test_published_threshold(make_system: MakeSystem) -> None:
    """FixMatch's code: pseudo-labels count from a confidence of .95."""
    assert make_system("pseudo-label").settings.threshold == 0.95


def test_fixmatch_without_threshold_and_strong_view_is_pseudo_labelling(
    make_system: MakeSystem, make_batch: Callable[..., Any], learner: Any
) -> None:
    generator = torch.Generator().manual_seed(0)
    labeled, view = torch.randn(4, 3, generator=generator), torch.randn(20, 3, generator=generator)
    batch = make_batch(labels=[0, 1, 2, 0], n_unlabeled=20)
    fixmatch, _ = make_system("fixmatch", threshold=0).loss(batch, learner(labeled, view, view))
    pseudo, metrics = make_system("pseudo-label", threshold=0, ramp=0).loss(batch, learner(labeled, view))
    assert metrics["pseudo_label_rate"] == 1
    assert fixmatch.item() == pseudo.item()


@pytest.mark.parametrize(
    ("n_steps", "ema_decay", "advice"),
    [
        (2**20, 0.999, ""),  # as published
        (60_000, 0.999, "1,000 of 60,000 steps, too slow to teach; --ema-decay 0.98 "),
        (1200, 0.995, "200 of 1,200 steps, too slow to teach; --ema-decay 0.13 "),
        (500, 0.9, "10 of 500 steps, too slow to teach; --ema-decay 0 "),
        (500, 0.0, ""),  # the student itself
        (500, 1.0, "inf of 500 steps"),  # the weights that were drawn
    ],
)
def test_a_teacher_that_lags_for_its_training_is_told_of(
    make_system: MakeSystem, n_steps: int, ema_decay: float, advice: str
) -> None:
    caution = make_system("mean-teacher", task={"n_steps": n_steps}).caution(ema_decay)
    assert (advice in caution) if advice else (caution == "")
    assert make_system("fixmatch", task={"n_steps": n_steps}).caution(ema_decay) == ""

"""Eq. 7: L = μ^MCL L^MCL + μ_l L_l + μ_u L_u, in two phases: (1, 0, 0) until L^MCL converges, then (0, 1, 1)."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from dpssl.config import Config, LabelingConfig, with_values
from dpssl.data.batches import ImageBank
from dpssl.labeling.losses import labeled_loss, unlabeled_loss
from dpssl.labeling.objective import SemiSupervised
from dpssl.labeling.train import backbone_gradient_scale, build_network, train_lfs
from dpssl.labeling.vote import cast_votes
from dpssl.nets.lf_heads import LFNetwork
from dpssl.nets.pooling import AveragePooling, FeatureTransform
from dpssl.training.watch import Watch

N_CLASSES, N_LFS = 3, 6


class Witness(Watch):
    """Notes, after every window: the stage, the steps done, the metrics and the network's specialised sets."""

    def __init__(self) -> None:
        super().__init__(progress=False)
        self.windows: list[tuple[str, int, dict[str, float], Tensor]] = []

    def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
        super().after_window(stage, step, metrics, state, notes)
        self.windows.append((stage, step, dict(metrics), state.modules["network"].specialties.clone()))

    def of(self, stage: str) -> list[tuple[int, dict[str, float], Tensor]]:
        return [(step, metrics, specialties) for name, step, metrics, specialties in self.windows if name == stage]


@pytest.fixture(scope="module")
def digits() -> tuple[ImageBank, Tensor]:
    """Zeros, ones and twos; the first five of each class keep their label."""
    images, truth = load_digits(n_class=N_CLASSES, return_X_y=True)
    stored = (images.reshape(-1, 8, 8, 1) * 255 / 16).astype(np.uint8)[:120]
    given = torch.full((120,), -1)
    for label in range(N_CLASSES):
        shown = np.flatnonzero(truth[:120] == label)[:5]
        given[shown] = label
    return ImageBank.from_numpy(stored, torch.device("cpu")), given


def tiny_config(**values: object) -> Config:
    return with_values(
        Config(),
        {
            "depth": 10, "width": 1, "n_lfs": N_LFS, "specialist_ratio": 0.34, "flip": False, "bn_momentum": 0.1,
            "mcl_min_steps": 4, "mcl_max_steps": 8, "steps": 8, "window": 4, "mcl_window": 4, "batch_size": 6,
            "unlabeled_ratio": 2,
            **values,
        },
    )  # fmt: skip


def run(digits: tuple[ImageBank, Tensor], **values: object) -> tuple[LFNetwork, Witness]:
    witness = Witness()
    return train_lfs(*digits, N_CLASSES, tiny_config(**values), witness), witness


@pytest.fixture(scope="module")
def paper_run(digits: tuple[ImageBank, Tensor]) -> tuple[LFNetwork, Witness]:
    return run(digits)


def test_multiple_choice_comes_first(paper_run: tuple[LFNetwork, Witness]) -> None:
    stages = [stage for stage, *_ in paper_run[1].windows]
    assert stages == sorted(stages, key=["mcl", "lfs"].index)
    assert set(stages) == {"mcl", "lfs"}
    for _, metrics, _ in paper_run[1].of("mcl"):
        assert "labeled_loss" not in metrics
        assert "unlabeled_loss" not in metrics


def test_the_specialised_sets_are_fixed_between_the_phases(paper_run: tuple[LFNetwork, Witness]) -> None:
    network, witness = paper_run
    assert all(specialties.all() for _, _, specialties in witness.of("mcl"))
    after = [specialties for _, _, specialties in witness.of("lfs")]
    assert not after[0].all()
    assert after[0].any(0).all()  # min_specialists = 1: no class without an LF
    assert all(torch.equal(specialties, network.specialties) for specialties in after)


def test_the_second_phase_adds_both_losses(digits: tuple[ImageBank, Tensor]) -> None:
    _, witness = run(digits, labeled_weight=0.5, unlabeled_weight=2.0, confidence_threshold=0.3)
    for _, metrics, _ in witness.of("lfs"):
        assert metrics["unlabeled_loss"] > 0
        assert metrics["loss"] == pytest.approx(0.5 * metrics["labeled_loss"] + 2 * metrics["unlabeled_loss"])


def test_the_first_phase_lasts_until_its_loss_converges(digits: tuple[ImageBank, Tensor]) -> None:
    # A tolerance of 100 % calls any three windows converged; one of 0 % with a falling loss none.
    _, early = run(digits, mcl_max_steps=40, mcl_tolerance=1.0, steps=1)
    assert [step for step, _, _ in early.of("mcl")] == [4, 8, 12]
    _, late = run(digits, mcl_max_steps=40, mcl_tolerance=1.0, mcl_min_steps=18, steps=1)
    assert [step for step, _, _ in late.of("mcl")] == [4, 8, 12, 16, 20]
    _, never = run(digits, mcl_max_steps=10, mcl_tolerance=0.0, mcl_min_steps=10, steps=1)
    assert [step for step, _, _ in never.of("mcl")] == [4, 8, 10]


def test_votes_stay_inside_the_specialised_sets(
    digits: tuple[ImageBank, Tensor], paper_run: tuple[LFNetwork, Witness]
) -> None:
    cast = cast_votes(paper_run[0], digits[0])
    assert cast.votes.shape == (120, N_LFS)
    row, lf = np.nonzero(cast.votes >= 0)
    assert cast.specialties[lf, cast.votes[row, lf]].all()


def test_without_mcl_nobody_abstains(digits: tuple[ImageBank, Tensor]) -> None:
    """The paper's Exp1: ρ = 1 and the abstain output masked."""
    network, witness = run(digits, mcl=False)
    assert len(witness.of("mcl")) > 0  # on labelled images, as all others, so that the ablation changes one thing
    assert network.specialties.all()
    assert (cast_votes(network, digits[0]).votes >= 0).all()
    assert all(metrics["coverage"] == 1 for _, metrics, _ in witness.of("lfs"))


def test_without_the_feature_transform_all_lfs_see_one_feature(digits: tuple[ImageBank, Tensor]) -> None:
    """The paper's Exp2: multiple-choice learning on the global average."""
    network, witness = run(digits, feature_transform=False)
    assert isinstance(network.pooling, AveragePooling)
    assert len(witness.of("mcl")) > 0
    assert not network.specialties.all()
    lf_features = network.lf_features(digits[0].network_input(digits[0].images[:4]))
    assert torch.equal(lf_features, lf_features[:, :1].expand_as(lf_features))


def test_unlabelled_images_are_learnt_from(digits: tuple[ImageBank, Tensor]) -> None:
    with_them, _ = run(digits, confidence_threshold=0.3)
    without, _ = run(digits, confidence_threshold=0.3, unlabeled_weight=0.0)
    assert not torch.equal(with_them.heads.weight, without.heads.weight)


def test_the_same_seed_gives_the_same_bytes(
    digits: tuple[ImageBank, Tensor], paper_run: tuple[LFNetwork, Witness]
) -> None:
    again, _ = run(digits)
    other, _ = run(digits, seed=2)
    for name, tensor in paper_run[0].state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    assert not torch.equal(other.heads.weight, again.heads.weight)


def test_returns_the_averaged_weights_in_evaluation_mode(digits: tuple[ImageBank, Tensor]) -> None:
    """With a decay of 1 the average stays at the start, and with 0 it is the last step's."""
    frozen, _ = run(digits, ema_decay=1.0)
    newest, _ = run(digits, ema_decay=0.0)
    assert not frozen.training
    assert isinstance(frozen.pooling, FeatureTransform)
    assert (frozen.heads.bias == 0).all()  # as drawn at the start
    assert (newest.heads.bias != 0).any()


# The objective of the second phase by itself


@pytest.mark.parametrize("abstain_view", ["weak", "strong"])
def test_the_objective_is_the_weighted_sum_of_eq_5_and_eq_6(abstain_view: str) -> None:
    settings = LabelingConfig(
        abstain_view=abstain_view, labeled_weight=0.25, unlabeled_weight=3.0, confidence_threshold=0.6
    )
    network = build_network(tiny_config(), N_CLASSES, 1)
    network.specialties.copy_(torch.rand(N_LFS, N_CLASSES, generator=torch.Generator().manual_seed(0)) < 0.5)
    objective = SemiSupervised(network, settings, torch.full((N_CLASSES,), 1 / N_CLASSES))
    raw = 3 * torch.randn(3, 9, N_LFS, N_CLASSES + 1, generator=torch.Generator().manual_seed(1))
    labeled, weak, strong = network.abstain_logits(raw)
    labels = torch.arange(9) % N_CLASSES
    loss, metrics = objective.loss(labeled, labels, weak, strong)
    eq5 = labeled_loss(labeled, labels, network.specialties).mean()
    eq6, _, sure = unlabeled_loss(weak.softmax(-1), weak, strong, 0.6, abstain_view)
    assert loss.item() == pytest.approx((0.25 * eq5 + 3 * eq6.mean()).item())
    assert metrics["pseudo_label_rate"].item() == pytest.approx(sure.float().mean().item())


def test_pseudo_labels_carry_no_gradient() -> None:
    network = build_network(tiny_config(), N_CLASSES, 1)
    settings = LabelingConfig(abstain_view="strong", confidence_threshold=0.0)
    objective = SemiSupervised(network, settings, torch.full((N_CLASSES,), 1 / N_CLASSES))
    labeled, weak, strong = (torch.randn(3, N_LFS, N_CLASSES + 1, requires_grad=True) for _ in range(3))
    loss, _ = objective.loss(labeled, torch.zeros(3, dtype=torch.long), weak, strong)
    on_weak, on_strong = torch.autograd.grad(loss, (weak, strong), allow_unused=True, materialize_grads=True)
    assert (on_weak == 0).all()
    assert (on_strong != 0).any()


@pytest.mark.parametrize(
    ("choice", "mcl", "scale"),
    [("mean", True, 1 / 6), ("specialists", True, 1 / 2), ("specialists", False, 1 / 6), ("sum", True, 1.0)],
)
def test_gradient_into_the_backbone(choice: str, mcl: bool, scale: float) -> None:
    settings = tiny_config(backbone_gradient=choice, mcl=mcl).labeling
    assert backbone_gradient_scale(settings) == pytest.approx(scale)


def test_only_the_backbone_is_scaled_and_only_in_the_second_phase(digits: tuple[ImageBank, Tensor]) -> None:
    scales: dict[str, set[float]] = {"mcl": set(), "lfs": set()}

    class ScaleWitness(Watch):
        def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
            scales[stage].add(state.modules["network"].gradient_scale)

    train_lfs(*digits, N_CLASSES, tiny_config(backbone_gradient="mean"), ScaleWitness(progress=False))
    assert scales == {"mcl": {1.0}, "lfs": {1 / N_LFS}}
    for of_stage in scales.values():
        of_stage.clear()
    train_lfs(
        *digits, N_CLASSES, tiny_config(backbone_gradient="mean", mcl_gradient=0.25), ScaleWitness(progress=False)
    )
    assert scales == {"mcl": {0.25}, "lfs": {1 / N_LFS}}


@pytest.mark.parametrize(("mcl_gradient", "moves"), [(0.0, False), (0.5, True)])
def test_the_first_phase_moves_the_backbone_by_its_share_of_the_gradient(
    digits: tuple[ImageBank, Tensor], mcl_gradient: float, moves: bool
) -> None:
    seen: list[Tensor] = []

    class StemWitness(Watch):
        def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
            if stage == "mcl":
                seen.append(state.modules["network"].backbone.stem.weight.detach().clone())

    config = tiny_config(mcl_gradient=mcl_gradient, weight_decay=0.0, mcl_min_steps=4, mcl_max_steps=4, mcl_window=1)
    train_lfs(*digits, N_CLASSES, config, StemWitness(progress=False))
    assert len(seen) == 4
    assert torch.equal(seen[0], seen[-1]) != moves


def test_heads_first_leaves_the_backbone_as_it_was(digits: tuple[ImageBank, Tensor]) -> None:
    """In all of the first phase and so many steps of the second, half of them at most; then it learns."""
    for heads_first, n_still in ((4, 4), (2, 2), (20, 5)):
        seen: list[dict[str, Tensor]] = []

        class WeightWitness(Watch):
            def after_window(self, stage: str, step: int, metrics: Any, state: Any, notes: Any) -> None:
                named = state.modules["network"].named_parameters()
                seen.append({name: tensor.detach().clone() for name, tensor in named})  # noqa: B023

        config = tiny_config(heads_first=heads_first, steps=10, window=1, weight_decay=0.0, ema_decay=0.0)
        train_lfs(*digits, N_CLASSES, config, WeightWitness(progress=False))
        of_second_phase = seen[-10:]
        moved = [
            any(not torch.equal(now[name], seen[0][name]) for name in now if name.startswith("backbone."))
            for now in of_second_phase
        ]
        assert moved == [False] * n_still + [True] * (10 - n_still)
        assert not torch.equal(seen[0]["heads.weight"], of_second_phase[0]["heads.weight"])

"""Labels that spread among neighbours: by hand, by a slow loop, and what they do to a consensus."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from dpssl.checks import check_settled
from dpssl.config import load_preset, with_values
from dpssl.constants import LEFT_OUT, UNLABELED
from dpssl.data.batches import ImageBank
from dpssl.errors import InputError
from dpssl.labeling import propagate, train
from dpssl.labeling.objective import SemiSupervised
from dpssl.labeling.propagate import neighbor_graph, propagated_labels, spread_labels
from dpssl.labeling.train import build_network
from dpssl.training.step import TrainState
from dpssl.training.watch import Watch


def two_groups(n_each: int = 30, apart: float = 1.0) -> Tensor:
    """Unit vectors in two groups at right angles, spread a little."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.tensor([[1.0, 0, 0], [0, apart, 0]]).repeat_interleave(n_each, 0)
    return F.normalize(centers + 0.05 * torch.randn(2 * n_each, 3, generator=generator), dim=1)


def test_one_label_a_group_labels_it_all() -> None:
    labels = torch.full((60,), -1)
    labels[3], labels[40] = 1, 0
    found = spread_labels(neighbor_graph(two_groups()), labels, 2)
    assert found.argmax(1).tolist() == [1] * 30 + [0] * 30
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-6)
    assert found[3].tolist() == [0, 1], "given labels stay"


def test_where_no_label_leads_nothing_is_said() -> None:
    """Of two groups that share no neighbours only one has a label."""
    labels = torch.full((60,), -1)
    labels[3] = 2
    found = spread_labels(neighbor_graph(two_groups()), labels, 4)
    assert (found[:30].argmax(1) == 2).all()
    assert not found[30:].any()


def test_three_images_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images 0 and 2 have labels 0 and 1; image 1 has weights of .6 and .2 to them, they .3 to each other.

    After one round .99 of .6 and of .2 have arrived at image 1: the classes are as likely as .36 to .04. Image 0 has
    .01 left of class 0 then and .297 of class 1, image 2 the other way round; so after the second round image 1 has
    .6 · .01 + .2 · .297 and .6 · .297 + .2 · .01 of them, times .99.
    """
    graph = torch.tensor([[0, 0.6, 0.3], [0.6, 0, 0.2], [0.3, 0.2, 0]]).to_sparse()
    for n_rounds, share in ((1, 0.9), (2, 0.0654**2 / (0.0654**2 + 0.1802**2))):
        monkeypatch.setattr(propagate, "N_ROUNDS", n_rounds)
        found = spread_labels(graph, torch.tensor([0, -1, 1]), 2)
        np.testing.assert_allclose(found, [[1, 0], [share, 1 - share], [0, 1]], rtol=1e-5)


def test_the_formula_as_a_slow_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagate, "N_NEIGHBORS", 3)
    generator = torch.Generator().manual_seed(1)
    x = F.normalize(torch.randn(12, 4, generator=generator), dim=1)
    n, weights = len(x), np.zeros((len(x), len(x)))
    for i in range(n):
        cosines = [(float(x[i] @ x[j]), j) for j in range(n) if j != i]
        for cosine, j in sorted(cosines, reverse=True)[:3]:
            weights[i, j] += np.exp((cosine - 1) / 0.1)
            weights[j, i] += np.exp((cosine - 1) / 0.1)
    degree = weights.sum(1)
    expected = weights / np.sqrt(np.outer(degree, degree))
    np.testing.assert_allclose(neighbor_graph(x).to_dense(), expected, rtol=1e-4)
    labels = np.array([0, 1, 2] + [-1] * 9)
    given = np.eye(3)[labels] * (labels >= 0)[:, None]
    reached = given
    for _ in range(60):
        reached = 0.99 * expected @ reached + 0.01 * given
    squared = reached[3:] ** 2
    found = spread_labels(neighbor_graph(x), torch.from_numpy(labels), 3)
    np.testing.assert_allclose(found[3:], squared / squared.sum(1, keepdims=True), rtol=1e-3, atol=1e-9)


def test_shares_that_are_known_are_met() -> None:
    """A chain of images between two labels, of which one class has three quarters: the border moves."""
    n_images = 41
    steps = torch.arange(n_images - 1)
    places = torch.stack([torch.cat([steps, steps + 1]), torch.cat([steps + 1, steps])])
    graph = torch.sparse_coo_tensor(places, torch.full((80,), 0.5), (n_images, n_images)).coalesce()
    labels = torch.full((n_images,), -1)
    labels[10], labels[30] = 0, 1
    even = spread_labels(graph, labels, 2, torch.tensor([0.5, 0.5]))
    np.testing.assert_allclose(even[15:26, 0], even[15:26, 1].flip(0), rtol=1e-3)
    uneven = spread_labels(graph, labels, 2, torch.tensor([0.75, 0.25]))
    np.testing.assert_allclose(uneven.mean(0), [0.75, 0.25], rtol=0.02)
    np.testing.assert_allclose(uneven.sum(1), 1, rtol=1e-6)
    assert int((uneven.argmax(1) == 0).sum()) > int((even.argmax(1) == 0).sum())
    assert uneven[30].tolist() == [0, 1]


def test_shares_say_nothing_where_no_label_leads() -> None:
    labels = torch.full((60,), -1)
    labels[3], labels[7] = 0, 1
    found = spread_labels(neighbor_graph(two_groups()), labels, 2, torch.tensor([0.5, 0.5]))
    np.testing.assert_allclose(found[:30].mean(0), [0.5, 0.5], rtol=0.01)
    assert not found[30:].any()


def test_scaling_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round on two images: their class means are .7 and .3, wanted are .5 each, then the rows sum to 1 again."""
    monkeypatch.setattr(propagate, "N_SCALINGS", 1)
    found = propagate.scaled_to(torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.0, 0.0]]), torch.tensor([0.5, 0.5]))
    first, second = (0.8 / 0.7) / (0.8 / 0.7 + 0.2 / 0.3), (0.6 / 0.7) / (0.6 / 0.7 + 0.4 / 0.3)
    np.testing.assert_allclose(found, [[first, 1 - first], [second, 1 - second], [0, 0]], rtol=1e-6)


class Pixels(nn.Module):
    """A backbone whose feature map is the image."""

    n_features = 64

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[..., None, None]


def digits_with_labels(n_images: int = 600) -> tuple[ImageBank, Tensor, Tensor]:
    digits = load_digits()
    bank = ImageBank.from_numpy((digits.images[:n_images, ..., None] * 15).astype("uint8"), torch.device("cpu"))
    truth = torch.from_numpy(digits.target[:n_images])
    given = torch.full((n_images,), UNLABELED)
    for label in range(10):
        chosen = torch.nonzero(truth == label).flatten()[:4]
        given[chosen] = label
    return bank, truth, given


def test_forty_labels_tell_most_digits() -> None:
    bank, truth, given = digits_with_labels()
    found = propagated_labels(Pixels(), bank, given, 10)
    right = found.argmax(1) == truth
    sure = found.max(1).values.topk(300).indices
    assert right.float().mean() > 0.9
    assert right[sure].float().mean() > 0.98


def test_images_left_out_have_no_part_in_it() -> None:
    bank, _, given = digits_with_labels(300)
    given[200:] = LEFT_OUT
    found = propagated_labels(Pixels(), bank, given, 10)
    assert not found[200:].any()
    bank.images[200:] = 0
    assert torch.equal(found, propagated_labels(Pixels(), bank, given, 10))


def objective_with(**values: object) -> SemiSupervised:
    plain = {"pseudo_labels": "consensus", "n_lfs": 4, "curriculum_threshold": False, "confidence_threshold": 0.55}
    config = with_values(load_preset("digits"), {**plain, **values})
    network = build_network(config, 3, 1)
    network.specialties.fill_(True)
    return SemiSupervised(network, config.labeling, torch.full((3,), 1 / 3))


def test_propagated_labels_give_way_to_the_consensus() -> None:
    """All LFs say class 0 of one image, the neighbours class 2: learnt is 2 at first, nothing half-way, then 0."""
    logits = torch.zeros(1, 4, 4)
    logits[..., 0] = 9.0
    propagated = torch.tensor([[0.0, 0.0, 1.0]])
    labeled, labels = torch.zeros(1, 4, 4), torch.tensor([1])
    objective, learnt = objective_with(propagation_steps=10), []
    for _ in range(12):
        strong = torch.zeros(1, 4, 4, requires_grad=True)
        loss, _ = objective.loss(labeled, labels, logits, strong, propagated)
        (gradient,) = torch.autograd.grad(loss, strong)
        learnt.append(int(gradient[0].sum(0).argmin()) if gradient.any() else -1)
    assert learnt == [2, 2, 2, 2, 2, -1, 0, 0, 0, 0, 0, 0]


def test_while_heads_come_first_they_learn_propagated_labels() -> None:
    """And nothing of an image that no label has reached, of which untrained heads may be sure."""
    labeled, labels, logits = torch.zeros(1, 4, 4), torch.tensor([1]), torch.zeros(1, 4, 4)
    logits[..., 0] = 9.0
    for propagated, counts in ((torch.tensor([[0.0, 0.0, 1.0]]), True), (torch.zeros(1, 3), False), (None, False)):
        objective = objective_with(propagation_steps=10, heads_first=5, steps=20)
        strong = torch.zeros(1, 4, 4, requires_grad=True)
        loss, _ = objective.loss(labeled, labels, logits, strong, propagated)
        (gradient,) = torch.autograd.grad(loss, strong)
        assert bool(gradient.any()) == counts
        assert objective.backbone_learns() == 0


def test_an_image_that_no_label_reaches_is_left_to_the_consensus() -> None:
    logits = torch.zeros(2, 4, 4)
    logits[..., 1] = 9.0
    strong = torch.zeros(2, 4, 4, requires_grad=True)
    propagated = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    labeled, labels = torch.zeros(1, 4, 4), torch.tensor([1])
    loss, _ = objective_with(propagation_steps=10).loss(labeled, labels, logits, strong, propagated)
    (gradient,) = torch.autograd.grad(loss, strong)
    assert gradient.sum(1).argmin(1).tolist() == [2, 1]


def test_the_consensus_has_half_of_the_steps_at_least() -> None:
    assert objective_with(propagation_steps=30, steps=20).propagation_steps == 10


@pytest.mark.parametrize(("adaptive_begins", "learnt"), [(True, [True, False]), (False, [True, True])])
def test_thresholds_begin_with_what_propagated_labels_are_sure_of(
    adaptive_begins: bool, learnt: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a sure and a doubtful label, mean confidence .7, the doubtful one passes a threshold of 1/C alone."""
    seen = []

    def note(stage: object, compute: object, state: TrainState, *rest: object, **more: object) -> None:
        seen.append(state.modules["objective"])
        raise InterruptedError

    bank, _, given = digits_with_labels(200)
    spread = torch.zeros(200, 10)
    spread[:100, 0], spread[:50, 1:5], spread[50:100, 0] = 0.4, 0.15, 1.0
    monkeypatch.setattr(train, "propagated_labels", lambda *_: spread)
    monkeypatch.setattr(train, "_run_multiple_choice", lambda _: None)
    monkeypatch.setattr(train, "train_stage", note)
    values = {**FIT, "propagation_steps": 5, "adaptive_threshold": True, "curriculum_threshold": False}
    config = with_values(load_preset("digits"), {**values, "propagation_thresholds": adaptive_begins})
    with pytest.raises(InterruptedError):
        train.train_lfs(bank, given, 10, config, Watch(progress=False))
    adaptive = seen[0].adaptive
    assert adaptive.trusts(spread[[60, 10]]).tolist() == learnt
    if adaptive_begins:  # rows that no label has reached do not count
        np.testing.assert_allclose(adaptive.threshold, 0.7, rtol=1e-6)
        np.testing.assert_allclose(adaptive.mean_prediction, [0.7, *[0.075] * 4, *[0.0] * 5], atol=1e-6)
        np.testing.assert_allclose(adaptive.label_histogram, [1.0, *[0.0] * 9], atol=1e-6)


FIT = {"pseudo_labels": "consensus", "warm_steps": 5}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (FIT, None),
        ({**FIT, "warm_steps": 0, "backbone_weights": "start.safetensors"}, None),
        ({**FIT, "warm_steps": 0}, r"--propagation-steps 5: .*--warm-steps"),
        ({**FIT, "pseudo_labels": "own"}, r"--propagation-steps 5: only with --pseudo-labels consensus"),
        ({"method": "fixmatch"}, None),
    ],
)
def test_it_asks_for_a_start_and_a_consensus(values: dict[str, object], complaint: str | None) -> None:
    config = with_values(load_preset("digits"), {"propagation_steps": 5, **values})
    with pytest.raises(InputError, match=complaint) if complaint else nullcontext():
        check_settled(config)


@pytest.mark.parametrize(("setting", "of_first"), [("estimated", None), ("uniform", 0.1), ("labels", 2 / 38)])
def test_step_1_hands_over_the_shares_that_are_known(
    setting: str, of_first: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, _, given = digits_with_labels(200)
    given[torch.nonzero(given == 0).flatten()[:2]] = UNLABELED
    seen = []

    def note(*values: object) -> Tensor:
        seen.append(values[-1])
        raise InterruptedError

    monkeypatch.setattr(train, "propagated_labels", note)
    config = with_values(load_preset("digits"), {**FIT, "propagation_steps": 5, "class_prior": setting})
    with pytest.raises(InterruptedError):
        train.train_lfs(bank, given, 10, config, Watch(progress=False))
    if of_first is None:
        assert seen == [None]
    else:
        np.testing.assert_allclose(seen[0], [of_first, *[(1 - of_first) / 9] * 9], rtol=1e-6)

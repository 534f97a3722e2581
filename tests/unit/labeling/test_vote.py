from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from dpssl.config import Config
from dpssl.data.batches import ImageBank
from dpssl.labeling import vote
from dpssl.labeling.train import start_network
from dpssl.labeling.vote import cast_votes, feature_diagnostics
from dpssl.nets.lf_heads import LFNetwork


@pytest.fixture
def network(digits: tuple[ImageBank, Tensor], tiny_config: Callable[..., Config]) -> LFNetwork:
    """A fresh network with strong opinions, one of whose LFs is dead and one knows every class."""
    network = start_network(tiny_config(), 3, digits[0])
    with torch.no_grad():
        network.heads.weight.mul_(30)
    network.specialties.copy_(
        torch.tensor(
            [[True, False, False], [False, True, True], [False, False, False], [True, True, True], [True, False, True]]
        )
    )
    return network.eval()


def test_votes_are_the_argmax_over_tau_and_abstain(network: LFNetwork, digits: tuple[ImageBank, Tensor]) -> None:
    bank = digits[0]
    cast = cast_votes(network, bank)
    logits = network(bank.network_input(bank.images)).detach().double()
    for i in range(0, 90, 9):
        for k in range(5):
            allowed = [*network.specialties[k].nonzero().flatten().tolist(), 3]
            p = logits[i, k, allowed].softmax(0)
            said = allowed[int(p.argmax())]
            assert cast.votes[i, k] == (said if said < 3 else -1)
            assert cast.confidence[i, k] == pytest.approx(p.max().item(), abs=2e-3)


def test_votes_stay_inside_tau(network: LFNetwork, digits: tuple[ImageBank, Tensor]) -> None:
    cast = cast_votes(network, digits[0])
    row, lf = np.nonzero(cast.votes >= 0)
    assert len(row) > 45
    assert cast.specialties[lf, cast.votes[row, lf]].all()
    assert (cast.votes[:, 2] == -1).all()  # the dead LF
    assert (cast.votes == -1).any(axis=0).sum() > 1
    assert cast.votes.dtype == np.int8
    assert cast.confidence.dtype == np.float16
    assert cast.specialties.dtype == np.bool_


@pytest.mark.parametrize("chunk", [1, 7, 89, 90, 1000])
def test_votes_do_not_depend_on_the_chunks(
    network: LFNetwork, digits: tuple[ImageBank, Tensor], monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    whole = cast_votes(network, digits[0])
    monkeypatch.setattr(vote, "CHUNK", chunk)
    pieces = cast_votes(network, digits[0])
    assert np.array_equal(pieces.votes, whole.votes)
    np.testing.assert_allclose(pieces.confidence, whole.confidence, atol=2e-3)


def test_voting_changes_nothing_in_the_network(network: LFNetwork, digits: tuple[ImageBank, Tensor]) -> None:
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    cast_votes(network, digits[0])
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize(("n_classes", "kind"), [(127, np.int8), (128, np.int16), (200, np.int16)])
def test_many_classes_need_wider_integers(
    digits: tuple[ImageBank, Tensor], tiny_config: Callable[..., Config], n_classes: int, kind: type
) -> None:
    network = start_network(tiny_config(), n_classes, digits[0]).eval()
    with torch.no_grad():
        network.heads.bias[:, n_classes - 1] = 100.0
    cast = cast_votes(network, digits[0])
    assert cast.votes.dtype == kind
    assert (cast.votes == n_classes - 1).all()


def test_an_inert_transform_shows(digits: tuple[ImageBank, Tensor], tiny_config: Callable[..., Config]) -> None:
    network = start_network(tiny_config(), 3, digits[0]).eval()
    alive = feature_diagnostics(network, digits[0])
    with torch.no_grad():
        network.pooling.start_sharpness.fill_(1e-9)
        network.pooling.centers.copy_(network.pooling.centers[:1].expand_as(network.pooling.centers))
    inert = feature_diagnostics(network, digits[0])
    assert alive["feature_cosine"] < 0.8 < inert["feature_cosine"]
    assert inert["feature_cosine"] == pytest.approx(1, abs=1e-3)
    assert alive["assignment_entropy"] < 0.95
    assert inert["assignment_entropy"] == pytest.approx(1, abs=1e-3)


def test_diagnostics_of_one_lf_or_of_plain_pooling(
    digits: tuple[ImageBank, Tensor], tiny_config: Callable[..., Config]
) -> None:
    assert feature_diagnostics(start_network(tiny_config(n_lfs=1), 3, digits[0]).eval(), digits[0]) == {}
    plain = feature_diagnostics(start_network(tiny_config(feature_transform=False), 3, digits[0]).eval(), digits[0])
    assert plain == {"feature_cosine": pytest.approx(1, abs=1e-3)}

"""FlexMatch's curriculum for predictors whose outcomes have unequal shares."""

import pytest
import torch

from dpssl.training import curriculum
from dpssl.training.curriculum import Curriculum


@pytest.fixture
def last_batch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curriculum, "DECAY", 0.0)


def sure_of(outcomes: list[int], n_outcomes: int, certainty: float = 0.99) -> torch.Tensor:
    rest = (1 - certainty) / (n_outcomes - 1)
    return torch.full((len(outcomes), n_outcomes), rest).scatter_(1, torch.tensor(outcomes)[:, None], certainty)


@pytest.mark.usefixtures("last_batch_counts")
def test_by_hand() -> None:
    """Of eight images four are sure to be 0 and two to be 1: b = (1, 1/2) of the best learnt, M(1/2) = 1/3."""
    thresholds = Curriculum(torch.tensor([0.5, 0.5]), 0.9)
    unsure = sure_of([0, 1], 2, certainty=0.6)
    thresholds.adapt(torch.cat([sure_of([0, 0, 0, 0, 1, 1], 2), unsure]))
    torch.testing.assert_close(thresholds.learnt, torch.tensor([0.5, 0.25]))
    torch.testing.assert_close(thresholds.thresholds(), torch.tensor([0.9, 0.3]))
    torch.testing.assert_close(thresholds.thresholds_of(unsure), torch.tensor([0.9, 0.3]))


@pytest.mark.usefixtures("last_batch_counts")
def test_while_nobody_is_sure_thresholds_rise_from_nothing() -> None:
    """The paper's warm-up: the images that nobody is sure of stand in the denominator."""
    thresholds = Curriculum(torch.full((4,), 0.25), 0.95)
    assert thresholds.thresholds().tolist() == [0, 0, 0, 0]
    thresholds.adapt(torch.cat([sure_of([0], 4), sure_of([0] * 9, 4, certainty=0.5)]))
    rate = 0.1 * 4 / (0.9 * 4)
    assert thresholds.thresholds()[0].item() == pytest.approx(0.95 * rate / (2 - rate))


@pytest.mark.usefixtures("last_batch_counts")
def test_an_lf_that_abstains_as_often_as_it_should_has_the_fixed_threshold_everywhere() -> None:
    prior = torch.tensor([0.2, 0.0, 0.8])
    thresholds = Curriculum(prior, 0.95)
    thresholds.adapt(sure_of([0, 2, 2, 2, 2], 3))
    torch.testing.assert_close(thresholds.thresholds()[[0, 2]], torch.tensor([0.95, 0.95]))
    thresholds.adapt(sure_of([2] * 5, 3))  # it has talked itself out of its class: the class needs no certainty now
    torch.testing.assert_close(thresholds.thresholds()[[0, 2]], torch.tensor([0.0, 0.95]))


@pytest.mark.usefixtures("last_batch_counts")
def test_predictors_do_not_share_a_curriculum() -> None:
    thresholds = Curriculum(torch.full((2, 2), 0.5), 0.9)
    both = torch.stack([sure_of([0, 0, 0, 1], 2), sure_of([1, 1, 1, 1], 2)], 1)  # (B, 2 predictors, 2)
    thresholds.adapt(both)
    low = (1 / 3) / (2 - 1 / 3)
    torch.testing.assert_close(thresholds.thresholds(), torch.tensor([[0.9, 0.9 * low], [0.0, 0.9]]))
    assert thresholds.thresholds_of(both).shape == (4, 2)


def test_shares_run_slowly() -> None:
    thresholds = Curriculum(torch.tensor([0.5, 0.5]), 0.9)
    thresholds.adapt(sure_of([0], 2))
    torch.testing.assert_close(thresholds.learnt, torch.tensor([0.01, 0.0]))

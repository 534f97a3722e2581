import pytest
import torch

from dpssl.labeling.specialties import WinnerCount, has_converged, read_specialties

SHARES = torch.tensor(  # (K, C): the third class has nobody at a half, the fourth nobody at all
    [[1.0, 0.5, 0.1, 0.0], [0.6, 0.49, 0.3, 0.0], [0.0, 0.0, 0.2, 0.0]]
)


def test_a_half_of_the_wins_makes_a_specialist() -> None:
    specialties = read_specialties(SHARES, 0.5, min_specialists=0)
    assert specialties.tolist() == [
        [True, True, False, False],
        [True, False, False, False],
        [False, False, False, False],  # dead: it only ever abstains
    ]


def test_a_class_nobody_took_gets_those_who_win_it_most_often() -> None:
    filled = read_specialties(SHARES, 0.5, min_specialists=1)
    assert filled[:, :3].tolist() == [[True, True, False], [True, False, True], [False, False, False]]
    assert filled[:, 3].sum() == 1


def test_filling_stops_at_the_minimum() -> None:
    two = read_specialties(SHARES, 0.5, min_specialists=2)
    assert two.sum(0).tolist() == [2, 2, 2, 2]
    assert two[:, 1].tolist() == [True, True, False]
    assert two[:, 2].tolist() == [False, True, True]


def test_a_class_with_enough_is_left_alone() -> None:
    shares = torch.tensor([[0.9], [0.8], [0.7], [0.1]])
    assert read_specialties(shares, 0.5, min_specialists=2).flatten().tolist() == [True, True, True, False]


def test_no_more_specialists_than_lfs() -> None:
    assert read_specialties(SHARES, 0.5, min_specialists=9).all()


def test_the_share_is_a_setting() -> None:
    assert read_specialties(SHARES, 0.25, 0).sum().item() == 5
    assert read_specialties(SHARES, 1.0, 0).sum().item() == 1


def test_one_specialist_a_class_at_rho_k_1() -> None:
    """Table 5's cell K = 10, ρ = .1: winners alone decide, each class is one LF's."""
    counts = WinnerCount(n_lfs=10, n_classes=10)
    counts.add(torch.eye(10, dtype=torch.bool), torch.arange(10))
    assert torch.equal(read_specialties(counts.shares(), 0.5, 0), torch.eye(10, dtype=torch.bool))


# Counting winners


def test_shares_are_wins_over_samples_of_the_class() -> None:
    counts = WinnerCount(n_lfs=2, n_classes=3)
    winners = torch.tensor([[True, False], [True, True], [False, True]])
    counts.add(winners, torch.tensor([0, 0, 2]))
    assert counts.shares().tolist() == [[1.0, 0.0, 0.0], [0.5, 0.0, 1.0]]


def test_recent_steps_weigh_more() -> None:
    counts = WinnerCount(n_lfs=2, n_classes=1)
    for _ in range(200):
        counts.add(torch.tensor([[True, False]]), torch.tensor([0]))
    for _ in range(100):
        counts.add(torch.tensor([[False, True]]), torch.tensor([0]))
    old, new = counts.shares().flatten().tolist()
    assert old + new == pytest.approx(1, abs=1e-5)
    assert new > 0.9


def test_a_class_that_is_away_for_long_keeps_its_shares() -> None:
    counts = WinnerCount(n_lfs=2, n_classes=2)
    counts.add(torch.tensor([[True, False]]), torch.tensor([0]))
    for _ in range(300):
        counts.add(torch.tensor([[False, True]]), torch.tensor([1]))
    assert counts.shares()[:, 0].tolist() == pytest.approx([1.0, 0.0])


# Convergence


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([], False),
        ([1.0], False),
        ([1.0, 1.0], False),  # two windows after the first are needed
        ([1.0, 1.0, 1.0], True),
        ([1.0, 0.5, 0.25], False),
        ([1.0, 0.5, 0.495, 0.496], True),
        ([1.0, 0.5, 0.495, 0.4], False),  # the last window still fell
        ([1.0, 0.5, 0.4, 0.399], False),  # one window is not two
        ([0.5, 0.7, 0.6], True),  # above the best before: no progress
        ([1.0, 0.01, 0.001], False),  # the first of the two still gained
        ([1.0, 0.01, 0.001, 1e-5], True),  # a tenth of itself each time, and nothing left to learn
    ],
)
def test_convergence_is_two_windows_without_progress(losses: list[float], expected: bool) -> None:
    assert has_converged(losses, least_gain=0.02) is expected


def test_windows_are_measured_against_the_best_before_all_of_them() -> None:
    """A slow fall of 1.5 % a window is 3 % in two: still learning where .02 is asked for."""
    assert not has_converged([1.0, 0.985, 0.970], least_gain=0.02)
    assert has_converged([1.0, 0.985, 0.981], least_gain=0.02)


def test_patience() -> None:
    losses = [1.0, 1.0, 1.0]
    assert has_converged(losses, 0.02, patience=1)
    assert not has_converged(losses, 0.02, patience=3)

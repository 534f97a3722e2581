"""Which run is heard about which classes."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dpssl import audit


def runs_that_tell_apart(monkeypatch: pytest.MonkeyPatch, *pairs_of_run: list[tuple[int, int]]) -> list[Any]:
    runs = [
        SimpleNamespace(
            pairs=pairs, dataset=SimpleNamespace(n_classes=5), folder=SimpleNamespace(has=lambda name: True)
        )
        for pairs in pairs_of_run
    ]

    def told_apart(run: Any, device: torch.device, memory: str) -> list[dict[str, int]]:
        return [{"near": near, "far": far} for near, far in run.pairs]

    monkeypatch.setattr(audit, "pairs_told_apart_by_size", told_apart)
    return runs


@pytest.mark.parametrize(
    ("told_apart", "no_say"),
    [
        ([[], [(3, 1)]], [[], [(1, 3)]]),
        ([[(1, 3)], [(3, 1)]], [[], []]),  # of all: all are heard
        ([[(0, 1), (2, 3)], [(1, 0)]], [[(2, 3)], []]),
        ([[(0, 1)], [(2, 3)]], [[(0, 1)], [(2, 3)]]),
        ([[(0, 1), (1, 2), (0, 2)], [(0, 2)]], [[], []]),  # 0 and 2 would be left to none, by way of 1
        ([[(0, 1), (1, 2)], [(0, 2)]], [[], []]),
        ([[(0, 1), (1, 2)], [(0, 2)], []], [[(0, 1), (1, 2)], [(0, 2)], []]),
    ],
)
def test_every_pair_of_classes_is_left_to_someone(
    monkeypatch: pytest.MonkeyPatch,
    told_apart: list[list[tuple[int, int]]],
    no_say: list[list[tuple[int, int]]],
) -> None:
    runs = runs_that_tell_apart(monkeypatch, *told_apart)
    assert audit.pairs_without_say(runs, torch.device("cpu"), "auto") == no_say


def test_a_run_without_an_end_model_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_that_tell_apart(monkeypatch, [(0, 1)], [(2, 3)])
    runs[0].folder.has = lambda name: False
    assert audit.pairs_without_say(runs, torch.device("cpu"), "auto") == [[], [(2, 3)]]

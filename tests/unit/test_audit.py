"""What a run's own networks say against its labels."""

from types import SimpleNamespace
from typing import Any

import numpy as np
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


def test_pairs_by_size_are_named_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_that_tell_apart(monkeypatch, [(3, 1), (1, 3), (0, 2)], [])
    assert audit.pairs_by_size(runs, torch.device("cpu"), "auto") == [[(0, 2), (1, 3)], []]


def test_a_run_without_an_end_model_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_that_tell_apart(monkeypatch, [(0, 1)], [(2, 3)])
    runs[0].folder.has = lambda name: False
    assert audit.pairs_by_size(runs, torch.device("cpu"), "auto") == [[], [(2, 3)]]


def kinds(sizes: list[int], explained: list[float]) -> audit.Kinds:
    rows = np.arange(sum(sizes))
    return audit.Kinds(rows, rows % 2, np.repeat(np.arange(len(sizes)), sizes), np.array(explained))


def test_hardly_explained_kinds_of_some_size_are_named() -> None:
    found = kinds([29, 30, 200, *[100] * 6], [0.1, 0.2, 0.05, 0.26, 0.6, 0.7, 0.8, 0.8, 0.8])
    assert audit.hardly_explained(found) == [2, 1], "the least explained first; 29 are too few, .26 is too much"


def test_features_that_explain_nothing_accuse_nobody() -> None:
    assert audit.hardly_explained(kinds([100] * 6, [0.1, 0.12, 0.11, 0.13, 0.1, 0.12])) == []
    assert audit.hardly_explained(kinds([100] * 6, [0.02, 0.12, 0.11, 0.13, 0.1, 0.12])) == [0]
    assert audit.hardly_explained(kinds([], [])) == []


def test_no_more_images_are_asked_than_a_report_takes() -> None:
    for n_classes, n_asked in ((2, 2000), (10, 10_000), (200, 10_000), (20_000, 20_000)):
        run: Any = SimpleNamespace(
            dataset=SimpleNamespace(n_classes=n_classes), split=SimpleNamespace(unlabeled=np.arange(50_000))
        )
        assert len(audit.images_asked_for_kinds(run)) == n_asked

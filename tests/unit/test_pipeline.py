"""The three steps in order; whole runs are in tests/integration."""

from typing import Any

import pytest

from dpssl import pipeline


def test_a_machine_without_scikit_learn_parts_no_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may train: then a run with a warm start ends well there, and `dpssl evaluate` elsewhere looks for kinds."""
    run: Any = object()
    monkeypatch.setattr(pipeline, "knows_its_kinds", lambda asked: asked is run)
    monkeypatch.setattr(pipeline, "on_writer", lambda work: work())
    monkeypatch.setattr(pipeline, "find_spec", lambda name: None)
    assert pipeline._kinds_to_look_at(run) is None

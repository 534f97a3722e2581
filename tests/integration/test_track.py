"""`--track true`: TensorBoard reads the curves of metrics.jsonl from the run folder."""

import json
from pathlib import Path
from typing import Any

import pytest


def test_a_run_writes_its_curves_as_events_too(warm_cli: Any, tiny: list[str], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    done = warm_cli("run", *tiny, "--track", "true", "--out", run)
    assert done.returncode == 0, done.stderr
    lines = list(map(json.loads, (run / "metrics.jsonl").read_text().splitlines()))
    assert {line["stage"] for line in lines} == {path.name for path in (run / "tensorboard").iterdir()}
    for stage in ("mcl", "lfs", "end"):
        read = EventAccumulator(str(run / "tensorboard" / stage)).Reload()
        logged = {line["step"]: line["loss"] for line in lines if line["stage"] == stage}
        assert {event.step: pytest.approx(event.value) for event in read.Scalars("loss")} == logged
    resumed = warm_cli("resume", run, "--track", "false")
    assert resumed.returncode == 0, resumed.stderr

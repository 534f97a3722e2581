"""What every benchmark writes: its figures as JSON, with the commit they were measured at."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent


def commit() -> str:
    """The commit of the tree that is measured; empty where there is no git."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def read_results(name: str) -> dict[str, Any]:
    """What was measured before, by the name of its file under results/."""
    return dict(json.loads((REPOSITORY / "results" / f"{name}.json").read_text()))


def write_results(out: Path, report: Mapping[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1, default=lambda value: value.tolist()) + "\n")  # numpy's


def measure_missing(
    out: Path,
    wanted: Sequence[Mapping[str, Any]],
    measure: Callable[..., Mapping[str, Any]],
    noted: Mapping[str, Any],
) -> None:
    """A row for each of `wanted` that `out` lacks, by `measure(folder, **of_row)`; each is written at once."""
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    for of_row in wanted:
        if any(of_row.items() <= row.items() for row in rows):
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows.append({**of_row, **measure(Path(folder), **of_row), "commit": commit()})
        print(rows[-1], flush=True)
        write_results(out, {"commit": commit(), **noted, "rows": rows})  # the last row's; others may be of an earlier

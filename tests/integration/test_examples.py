"""The examples run as their first lines say, and show what they claim."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def run_example(repo_root: Path, tmp_path: Path):
    def run(name: str, *arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, repo_root / "examples" / name, *map(str, arguments)],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def accuracies(output: str) -> dict[str, float]:
    """The lines `  name  91.7%` at the end of an example."""
    return {name.strip(): float(value) for name, value in re.findall(r"^  (\S.*?)\s+([\d.]+)%$", output, re.MULTILINE)}


def test_keyword_rules_on_text(run_example) -> None:
    output = run_example("text_labeling_functions.py")
    assert "LF 11: not" in output
    assert "est. accuracy" in output
    found = accuracies(output)
    assert set(found) == {"majority vote", "LabelModel", "LabelModel with 12 labels"}
    assert found["LabelModel"] >= found["majority vote"] > 80
    assert found["LabelModel with 12 labels"] > found["majority vote"]


def test_crowd_votes(run_example) -> None:
    output = run_example("crowd_votes.py")
    assert output.startswith("1,000 items, 25 annotators, 4 classes, 5.0 answers an item")
    found = accuracies(output)
    assert found["LabelModel"] > found["majority vote"] + 3
    ranking = [int(annotator) for annotator in re.findall(r"^ +(\d+) +\d+ +[\d.]+% ±", output, re.MULTILINE)]
    assert sorted(ranking[-5:]) == [0, 5, 10, 15, 20], "those who guess come last"


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_crowd_votes_of_ones_own(run_example, tmp_path: Path, ending: str) -> None:
    votes = np.random.default_rng(0).integers(-1, 2, (40, 5))
    path = tmp_path / f"answers.{ending}"
    if ending == "csv":
        cells = ["id,ann,bob,cem,dan,eve"] + [f"{row}," + ",".join(map(str, line)) for row, line in enumerate(votes)]
        path.write_text("\n".join(cells).replace("-1", "") + "\n")
    else:
        np.savez(path, votes=votes, y=np.zeros(40, dtype=int))
    output = run_example("crowd_votes.py", path)
    assert output.startswith("40 items, 5 annotators, 2 classes")
    assert ("accuracy (" in output) == (ending == "npz"), "scored only where the truth is there"

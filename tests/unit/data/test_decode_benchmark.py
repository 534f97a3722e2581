"""benchmarks/decode.py on a handful of images: it decodes them in both ways and writes its figures."""

import json
import subprocess
import sys
from pathlib import Path


def test_the_benchmark_writes_its_figures(repo_root: Path, tmp_path: Path) -> None:
    script = repo_root / "benchmarks" / "decode.py"
    flags = ["--images", "3", "--processes", "1", "--repeats", "1", "--out", str(tmp_path / "decode.json")]
    done = subprocess.run([sys.executable, str(script), *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "decode.json").read_text())
    assert figures["n_images"] == 3
    assert figures["speed_up"] > 0
    assert figures["mean_difference_in_levels"] < 5, "both ways see the same pictures"

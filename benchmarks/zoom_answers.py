"""What a trained end model answers when it is shown its images larger or smaller. It needs no truth.

    python benchmarks/zoom_answers.py runs/cifar10_40_seed1 runs/cifar10_40_seed11    # -> results/zoom_answers.json

An animal seen closer is the same animal. Where the answers of one class become those of another as the image grows,
the two are told apart by how much of the image they fill, not by what they are.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_file import REPOSITORY, commit, write_results

from dpssl.end_model.sizes import answers, becomes, images_to_ask
from dpssl.end_model.storage import load_end_model
from dpssl.runs import Run, open_run

PER_CLASS = 600  # images
# Part of each side that is shown, and where it lies: down, right.
VIEWS = {
    "middle, part .75": (0.75, 0.5, 0.5),
    "middle, part .6": (0.6, 0.5, 0.5),
    "top, part .6": (0.6, 0.0, 0.5),
    "smaller, part 1.4": (1.4, 0.5, 0.5),
}


def measured(run: Run) -> dict[str, Any]:
    """For every view, the share of the images of each answer (rows) that get each answer now (columns)."""
    model = load_end_model(run.folder, torch.device("cpu"))
    rows = images_to_ask(run.split.unlabeled, run.dataset.n_classes, PER_CLASS)
    bank = model.bank.with_images(run.dataset.images[rows])

    def ask(part: float, down: float, right: float) -> np.ndarray:
        return answers(model.network, bank, part=part, down=down, right=right)

    whole = ask(1, 0.5, 0.5)
    tables = {name: np.round(becomes(whole, ask(*view)), 3).tolist() for name, view in VIEWS.items()}
    names = list(run.dataset.class_names)
    return {"label_seed": run.config.run.seed, "n_images": len(rows), "class_names": names, "becomes": tables}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--out", default=str(REPOSITORY / "results" / "zoom_answers.json"))
    chosen = parser.parse_args(arguments)
    found = {Path(path).name: measured(open_run(path, writes=False)) for path in chosen.runs}
    write_results(Path(chosen.out), {"commit": commit(), "views": VIEWS, "runs": found})
    for name, result in found.items():
        print(name, json.dumps(result["becomes"]["middle, part .6"]))


if __name__ == "__main__":
    main()

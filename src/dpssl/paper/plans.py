"""The scale at which tables are run, with its budget and seeds: which sets, presets and label counts stand behind them.

At the scale `paper` they are the paper's; at the scale `fashion` Fashion-MNIST stands in for them, with a network of
which many fit on one GPU; at the scale `small` scikit-learn's digits, with a network for a CPU.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from dpssl.config import DP_SSL, load_preset
from dpssl.data.published.class_names import CIFAR10_CLASSES, DIGITS, FASHION_CLASSES
from dpssl.errors import InputError
from dpssl.paper.cells import END_MODEL_SHARE, Cell
from dpssl.paper.published import published_settings


@dataclass(frozen=True)
class Scale:
    """Sets with their presets and label counts, and how long and how often a cell runs unless told otherwise."""

    name: str
    presets: dict[str, str]
    labels: dict[str, tuple[int, ...]]  # of Tables 1 and 3, by set
    few_labels: tuple[int, ...]  # of the 10/20/30-label experiment
    oracle: tuple[str, int]  # set and labels of the class-wise regulariser
    class_names: tuple[str, ...]  # of the first set
    steps: int
    seeds: tuple[int, ...]
    note: str

    @property
    def main_set(self) -> str:
        return next(iter(self.labels))


SCALES = {
    "paper": Scale(
        "paper",
        {"cifar10": "cifar10-wrn-28-2", "cifar100": "cifar100-400", "svhn": "svhn-wrn-28-2", "stl10": "stl10-40"},
        {"cifar10": (40, 250, 4000), "cifar100": (400, 2500, 10000), "svhn": (40, 250, 1000)},
        (10, 20, 30),
        ("cifar100", 2500),
        CIFAR10_CLASSES,
        60_000,
        (1, 2, 3, 4, 5),
        "The paper trained for 1,048,576 steps.",
    ),
    "fashion": Scale(
        "fashion",
        {"fashion-mnist": "fashion-40"},
        {"fashion-mnist": (40, 250)},
        (10, 20, 30),
        ("fashion-mnist", 250),
        FASHION_CLASSES,
        5000,
        (1, 2, 3),
        "A stand-in: Fashion-MNIST (28x28 pixels) and a Wide ResNet-16-2; the paper has no such numbers.",
    ),
    "small": Scale(
        "small",
        {"digits": "digits"},
        {"digits": (40, 250)},
        (10, 20, 30),
        ("digits", 250),
        DIGITS,
        1200,
        (1, 2, 3),
        "A small stand-in: scikit-learn's digits (8x8 pixels) and a Wide ResNet-10-1; the paper has no such numbers.",
    ),
}
# Where DP-SSL's settings owe something to the truth of the very set: docs/reproduce.md.
CHOSEN_WITH_TRUTH = {
    "cifar10": "DP-SSL's settings on CIFAR-10 were chosen with the truth of label seed 1, at 40 labels.",
    "svhn": "DP-SSL's fixed threshold on SVHN was chosen with the truth of label seeds 1 and 2, at 250 labels.",
}
SET_TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
    "stl10": "STL-10",
    "fashion-mnist": "Fashion-MNIST",
    "digits": "digits",
}


@dataclass(frozen=True)
class Plan:
    """A scale with the budget and the seeds that were asked for."""

    scale: Scale
    steps: int
    seeds: tuple[int, ...]

    def cells(
        self, data: str, n_labels: int, method: str = DP_SSL, variant: str = "default", *, end_model: bool = True
    ) -> tuple[Cell, ...]:
        """A cell for each seed."""
        preset, published = self.scale.presets[data], published_settings(method, data, n_labels)
        return tuple(
            Cell(
                preset,
                data,
                n_labels,
                method,
                seed,
                self.steps,
                variant,
                method_settings=published,
                end_model=end_model,
            )
            for seed in self.seeds
        )

    def grid_cells(self, n_lfs: int, ratio: float) -> tuple[Cell, ...]:
        """Cells of Table 5. rho = 1 trains every LF on every class: that is Exp1, without multiple-choice learning."""
        data = self.scale.main_set
        default = load_preset(self.scale.presets[data]).labeling
        like = self.cells(data, 40, variant="exp1" if ratio == 1 else "default", end_model=False)
        if n_lfs == default.n_lfs and ratio in (1, default.specialist_ratio):
            return like
        settings = (("n_lfs", n_lfs), *((("mcl", False),) if ratio == 1 else (("specialist_ratio", ratio),)))
        return tuple(dataclasses.replace(cell, variant=f"K{n_lfs}-rho{ratio:g}", settings=settings) for cell in like)


def make_plan(scale: str, steps: int | None = None, seeds: Sequence[int] = ()) -> Plan:
    """The plan of the scale of that name; without `steps` or `seeds`, with those of the scale."""
    if scale not in SCALES:
        raise InputError(f"--scale {scale!r}: choose one of {', '.join(SCALES)}")
    for seed in seeds:
        if seed < 0:
            raise InputError(f"--seeds {seed}: must be at least 0")
    found = SCALES[scale]
    return Plan(found, found.steps if steps is None else steps, tuple(dict.fromkeys(seeds)) or found.seeds)


def budget(plan: Plan, cells: Sequence[Cell]) -> str:
    """The budget of each of the cells in words, DP-SSL's with its parts."""
    of_dp_ssl = [cell.end_model for cell in cells if cell.method == DP_SSL]
    if not of_dp_ssl:
        return f"Budget: {plan.steps:,} steps a cell."
    end_steps = max(1, plan.steps // END_MODEL_SHARE)
    left_out = "" if any(of_dp_ssl) else ", which is left out here"
    return (
        f"Budget: {plan.steps:,} steps a cell for every method; DP-SSL takes {plan.steps - end_steps:,} of them for "
        f"its labeling functions and {end_steps:,} for its end model{left_out}, after a first phase on labelled images "
        "alone."
    )

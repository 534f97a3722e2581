"""A cell: one training run that tables are made of, with its name, its settings and its budget.

Cells have the same name exactly where they are the same run, so tables share them: the default DP-SSL run on CIFAR-10
with 40 labels stands in Tables 1, 3, 4 and 5 and is trained once.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from dpssl.config import (
    DP_SSL,
    NO_METHOD,
    Config,
    load_preset,
    of_dp_ssl_alone,
    options,
    settings_that_matter,
    with_values,
)
from dpssl.errors import InputError

END_MODEL_SHARE = 4  # one in so many of DP-SSL's steps trains the end model
ORACLE = "oracle-regularizer"
AS_PRINTED = "as-printed"
# What a cell may change against its preset, by the name that stands in its file name and in --cells.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "exp1": {"mcl": False},
    "exp2": {"feature_transform": False},
    # What the paper prints of its method (docs/method.md); what all systems share stays as it is for all.
    AS_PRINTED: {
        **{"pseudo_labels": "own", "adaptive_threshold": False, "curriculum_threshold": False, "abstain_view": "weak"},
        **{"backbone_gradient": "sum", "sharpness_range": 0.0, "min_specialists": 0},
        **{"label_model": "paper", "use_confidence": False, "end_start": "scratch"},
    },
    "paper-label-model": {"label_model": "paper", "use_confidence": False},
    ORACLE: {"label_model": "paper", "use_confidence": False},
}
# Settings that came later: runs from before go on where these have their defaults.
LATER = (
    *("repeat", "least_threshold", "most_threshold", "thresholds_follow"),
    *("mcl_gradient", "weak_gradient", "center_rate"),
    *("propagation_steps", "propagation_thresholds", "end_depth", "end_width", "end_strides"),
    *("second_method", "combined_steps", "combined_end_steps"),
)

# Settings of DP-SSL that are gone, as they were: run folders from before keep their names.
GONE = {"abstain_claim": 0.0, "fairness_weight": 0.0}


@dataclass(frozen=True)
class Cell:
    """One run. Its budget is `steps`, all of its stages together but DP-SSL's first phase, which is short."""

    preset: str
    data: str
    n_labels: int
    method: str
    seed: int
    steps: int
    variant: str = "default"
    settings: tuple[tuple[str, Any], ...] = ()  # of the variant, where its name does not say them
    method_settings: tuple[str, ...] = ()  # name=value where the method has others on this set than its defaults
    end_model: bool = dataclasses.field(default=True, compare=False)  # whether a table asks for test accuracy

    @property
    def name(self) -> str:
        variant = "" if self.variant == "default" else f"_{self.variant}"
        return f"{self.data}-{self.n_labels}_{self.method}{variant}_{self.steps}-steps_seed-{self.seed}"

    @property
    def uses_truth(self) -> bool:
        """Whether the run is an oracle, fed with what nobody knows."""
        return self.variant == ORACLE

    def config(self) -> Config:
        """The whole configuration of the run."""
        values: dict[str, Any] = {
            "data": self.data,
            "n_labels": self.n_labels,
            "seed": self.seed,
            "method": self.method,
            "steps": self.steps,
            "report": False,
            "warm_steps": 0,  # every row starts from drawn weights, as the paper's do
            "propagation_steps": 0,  # in which no label could spread
            "plan": False,  # minutes stop a cell, they do not change its steps
            **{"second_method": NO_METHOD, "combined_steps": 0, "combined_end_steps": 0},
            "method_settings": self.method_settings,
        }
        preset = load_preset(self.preset)
        if self.method == DP_SSL:
            end_steps = max(1, self.steps // END_MODEL_SHARE)
            lf_steps = max(1, self.steps - end_steps)
            values |= {"steps": lf_steps, "end_steps": end_steps}
            for name in ("mcl_min_steps", "mcl_max_steps"):  # a budget of few steps shortens the first phase too
                values[name] = min(getattr(preset.labeling, name), lf_steps)
        if preset.data.fold:  # the paper's "pre-defined folds": each seed has its own
            values["fold"] = self.seed
        return with_values(preset, values | VARIANTS.get(self.variant, {}) | dict(self.settings))

    def settings_in_use(self) -> dict[str, Any]:
        """The settings that decide its figures: none of a warm start it has not, nor of steps it has not."""
        config = self.config()
        unused = {"method_settings"}  # a run notes all of its method's, a cell those it changes
        if self.method != DP_SSL:
            unused |= of_dp_ssl_alone()
        if not config.n_warm_steps:
            unused |= {entry.name for entry in options() if entry.section == "warm_start"} - {"warm_steps"}
        return {name: value for name, value in settings_that_matter(config).items() if name not in unused}

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """What `to_json` gave, after a journey through JSON, which has no tuples."""
        settings = tuple((name, value) for name, value in document["settings"])
        method_settings = tuple(document.get("method_settings", ()))
        return cls(**{**document, "settings": settings, "method_settings": method_settings})


def folder_name(cell: Cell) -> str:
    """The cell's run folder: its name and a checksum of its settings, so that a changed preset starts a new run."""
    in_use = cell.settings_in_use()
    defaults = settings_that_matter(Config())
    for name in LATER:
        if name in in_use and in_use[name] == defaults[name]:
            del in_use[name]
    if cell.method == DP_SSL:
        in_use |= GONE
    if cell.method_settings:
        in_use["method_settings"] = cell.method_settings
    text = json.dumps(in_use, sort_keys=True)
    return f"{cell.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def each_once(cells: Iterable[Cell]) -> list[Cell]:
    """The cells in order, each once; it trains its end model where any of its namesakes does."""
    found: dict[str, Cell] = {}
    for cell in cells:
        earlier = found.get(cell.name, cell)
        found[cell.name] = dataclasses.replace(earlier, end_model=earlier.end_model or cell.end_model)
    return list(found.values())


FILTERS = {"method": "method", "data": "data", "labels": "n_labels", "seed": "seed", "variant": "variant"}


def select(cells: Sequence[Cell], filters: Sequence[str]) -> list[Cell]:
    """The cells that fit every filter, each `name=value` or `name=value,value`."""
    every_cell = cells
    for text in filters:
        name, sign, wanted = text.partition("=")
        if name not in FILTERS or not sign:
            raise InputError(f"--cells {text}: write name=value, with a name of {', '.join(FILTERS)}")
        known = list(dict.fromkeys(str(getattr(cell, FILTERS[name])) for cell in cells))
        for value in wanted.split(","):
            if value not in known:
                where = "" if cells == every_cell else " among those of the filters before it"
                raise InputError(f"--cells {text}: no such cell{where}; {name} may be {', '.join(known)}")
        cells = [cell for cell in cells if str(getattr(cell, FILTERS[name])) in wanted.split(",")]
    return list(cells)

"""The report as one self-contained HTML file: sections from the parts a run has, filled into the template."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpssl import __version__
from dpssl.config import Config, flag, options
from dpssl.data.split import Split
from dpssl.data.table import Dataset
from dpssl.report.advice import advise
from dpssl.report.change import read_change, read_combination
from dpssl.report.contents import RunContents, read_contents
from dpssl.report.evaluation import Evaluation, evaluate_labels
from dpssl.report.gallery import class_galleries
from dpssl.report.headline import headlines
from dpssl.report.lf_statistics import LFStatistics, describe_lfs
from dpssl.report.names import joined, percent, probability, rough, shown
from dpssl.report.plots_classes import class_plots
from dpssl.report.plots_confidence import confidence_plots
from dpssl.report.plots_lfs import lf_plots
from dpssl.report.plots_training import training_plots
from dpssl.run_folder import RunFolder

if TYPE_CHECKING:
    from markupsafe import Markup

REPORT = "report.html"
STEPS = {"lfs": "1, labeling functions", "label": "2, label model", "train": "3, end model", "fit": "training"}
MOST_OPEN_GALLERIES = 12


def write_report(
    folder: RunFolder, config: Config, environment: Mapping[str, str], dataset: Dataset, split: Split
) -> Path:
    """report.html from what `folder` holds; returns its path. Needs matplotlib and jinja2."""
    folder.write_text(REPORT, render_report(read_contents(folder, config, environment, dataset, split)))
    return folder.path(REPORT)


def render_report(contents: RunContents) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    templates = Environment(
        loader=PackageLoader("dpssl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "shown": shown,
        "percent": percent,
        "probability": probability,
        "rough": rough,
        "svg": Markup,
        "flags": _with_flags,
    }
    return templates.get_template("report.html").render(style=Markup(style_sheet()), **_sections(contents))


def _with_flags(text: str) -> "Markup":
    """`text`, escaped, with each flag and its value as code: no browser then breaks a line inside it."""
    from markupsafe import Markup, escape

    parts = re.split(r"(--[a-z][a-z-]*(?: \d+(?:\.\d+)?)?)", text)  # every second one is a flag
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def style_sheet() -> str:
    """The style of every page of dpssl, light and dark."""
    return (resources.files("dpssl.report") / "style.css").read_text(encoding="utf-8")


def _sections(contents: RunContents) -> dict[str, Any]:
    """What the template shows; a section without its part of the run is None."""
    labels = contents.labels
    evaluation = evaluate_labels(contents.dataset, labels) if labels is not None else None
    lfs = describe_lfs(contents.votes) if contents.votes is not None else None
    names = contents.class_names
    return {
        "title": contents.folder.folder.resolve().name,
        "version": __version__,
        "dataset": contents.dataset,
        "n_labeled": len(contents.split.labeled),
        "n_unlabeled": len(contents.split.unlabeled),
        "environment": contents.environment,
        "seed": _seed(contents.config),
        "method": contents.config.baseline.method,
        "headlines": headlines(contents),
        "change": read_change(contents, labels),
        "combination": read_combination(contents),
        "advice": advise(contents, lfs),
        "confidence_plots": confidence_plots(labels, names, evaluation) if labels is not None else None,
        "class_plots": class_plots(contents, labels, evaluation) if labels is not None else None,
        "class_rows": _class_rows(contents, lfs, evaluation),
        "has_truth": evaluation is not None,
        "galleries": class_galleries(contents, labels) if labels is not None else None,
        "has_embeddings": contents.embeddings is not None,
        "most_open_galleries": MOST_OPEN_GALLERIES,
        "lf_plots": lf_plots(lfs, names, contents.lf_summary) if lfs is not None else None,
        "lf_rows": _lf_rows(contents, lfs) if lfs is not None else [],
        "lf_notes": _lf_notes(lfs) if lfs is not None else [],
        "training_plots": training_plots(contents.log),
        "minutes": [(STEPS.get(step, step), spent) for step, spent in _minutes(contents).items()],
        "settings": _settings(contents.config),
    }


def _seed(config: Config) -> str:
    run = config.run
    return f"{run.seed}, repeat {run.repeat}" if run.repeat else f"{run.seed}"


@dataclass(frozen=True)
class ClassRow:
    name: str
    n_given: int
    n_labels: int | None = None
    mean_confidence: float | None = None
    expected_wrong: float | None = None
    n_specialists: int | None = None
    precision: float | None = None  # these two need the truth
    recall: float | None = None


def _class_rows(contents: RunContents, lfs: LFStatistics | None, evaluation: Evaluation | None) -> list[ClassRow]:
    given = np.bincount(contents.split.given_labels[contents.split.labeled], minlength=len(contents.class_names))
    specialists = None if lfs is None else lfs.specialties.sum(axis=0)
    labels, scores = contents.labels, contents.summary.get("per_class") or []
    rows = []
    for label, name in enumerate(contents.class_names):
        row: dict[str, Any] = {"name": shown(name), "n_given": int(given[label])}
        if labels is not None:
            row["n_labels"] = int(labels.counts[label])
            row["expected_wrong"] = float(labels.expected_wrong[label])
            row["mean_confidence"] = float(labels.mean_confidence[label]) if labels.counts[label] else None
        if specialists is not None:
            row["n_specialists"] = int(specialists[label])
        if evaluation is not None and label < len(scores):
            row |= {"precision": scores[label]["precision"], "recall": scores[label]["recall"]}
        rows.append(ClassRow(**row))
    return rows


def _lf_rows(contents: RunContents, lfs: LFStatistics) -> list[dict[str, Any]]:
    estimated = contents.lf_summary
    names = [shown(name) for name in contents.class_names]
    rows = []
    for lf in range(len(lfs.coverage)):
        accuracy = float(estimated.estimated_accuracy[lf]) if estimated is not None else float("nan")
        rows.append(
            {
                "number": lf,
                "classes": joined([names[label] for label in np.flatnonzero(lfs.specialties[lf])], 6) or "none",
                "coverage": float(lfs.coverage[lf]),
                "overlaps": float(lfs.overlaps[lf]),
                "conflicts": float(lfs.conflicts[lf]),
                "accuracy": accuracy if np.isfinite(accuracy) else None,
                "error": 2 * float(estimated.standard_error[lf]) if estimated is not None else None,
            }
        )
    return rows


def _lf_notes(lfs: LFStatistics) -> list[str]:
    """Dead and duplicate LFs by number."""
    notes = []
    if lfs.dead:
        notes.append(f"Never vote (dead): {joined(list(map(str, lfs.dead)), 30)}.")
    if lfs.copies:
        groups = "; ".join(joined(list(map(str, group)), 12) for group in lfs.copies[:12])
        more = f"; and {len(lfs.copies) - 12} more groups" if len(lfs.copies) > 12 else ""
        notes.append(f"Say all but the same (duplicates): {groups}{more}.")
    return notes or ["Every labeling function votes, and none repeats another."]


def _minutes(contents: RunContents) -> dict[str, float]:
    return dict(contents.summary.get("minutes_per_step") or {})


def _settings(config: Config) -> list[dict[str, Any]]:
    """Every setting as a row; those that differ from the default are marked."""
    return [
        {
            "section": entry.section,
            "flag": flag(entry.name),
            "value": _setting_text(getattr(getattr(config, entry.section), entry.name)),
            "is_default": getattr(getattr(config, entry.section), entry.name) == entry.default,
            "help": entry.help,
        }
        for entry in options()
    ]


def _setting_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, tuple) else shown(str(value)) if value != "" else "–"

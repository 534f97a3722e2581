"""The headline numbers of a run, and how they are shown on a terminal. Definitions are in dpssl.metrics."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl import metrics
from dpssl.constants import AGAINST_SIZE
from dpssl.data.split import Split
from dpssl.data.table import Dataset
from dpssl.label_model import covered, effective_lfs
from dpssl.run_folder import RunFolder

MOST_PAIRS = 3  # told apart by size, that are named
LEARNT = 0.5  # of the images have a label; what a run that has not learnt tells apart is noise
FEW_STEPS = "Few steps, {steps:,}: a label may be wrong however sure it is. Look at the report before you use them."


def summarize(
    folder: RunFolder, dataset: Dataset, split: Split, test_probabilities: NDArray[np.floating[Any]] | None
) -> dict[str, Any]:
    """Everything that can be said of the files in `folder`: steps that have not run are left out or None."""
    rows = split.unlabeled
    summary: dict[str, Any] = {
        "annotation_accuracy": None,
        "annotation_macro_f1": None,
        "coverage": None,
        "test_accuracy": None,
        "n_images": len(dataset.images),
        "n_labeled": len(split.labeled),
        "n_test": len(dataset.test_images),
        "class_names": list(dataset.class_names),
    }
    if folder.has("votes.npz"):
        file = folder.read_votes(dataset.ids)
        votes, truth = file.votes[rows], dataset.truth[rows]
        summary |= metrics.specialist_summary(file.specialties)
        summary["majority_vote_accuracy"] = metrics.majority_vote_accuracy(votes, truth, dataset.n_classes)
        summary["effective_lfs_per_class"] = effective_lfs(votes, file.specialties)
        summary["share_of_empty_rows"] = float((~covered(votes)).mean())
        summary |= _feature_diagnostics(folder)
    if folder.has("soft_labels.npz"):
        labels = folder.read_soft_labels(dataset.ids)
        summary |= metrics.annotation_metrics(labels.soft_labels[rows], labels.covered[rows], dataset.truth[rows])
    if folder.has("pseudo_labels.npz"):
        pseudo = folder.read_arrays("pseudo_labels.npz", "labels", "trusted")
        trusted = rows[pseudo["trusted"][rows]]
        summary["mask_rate"] = len(trusted) / len(rows)
        summary["proxy_label_accuracy"] = metrics.accuracy(pseudo["labels"][trusted], dataset.truth[trusted])
    if test_probabilities is not None:
        summary["test_accuracy"] = metrics.accuracy(test_probabilities.argmax(1), dataset.test_truth)
        summary["test_log_loss"] = metrics.log_loss(test_probabilities, dataset.test_truth)
    return summary


def _feature_diagnostics(folder: RunFolder) -> dict[str, float]:
    if not folder.has("metrics.jsonl"):
        return {}
    lines = [line for line in folder.read_jsonl("metrics.jsonl") if line["stage"] == "votes"]
    return {name: value for name, value in lines[-1].items() if name not in ("stage", "step")} if lines else {}


def as_text(summary: dict[str, Any], folder: RunFolder, zoom: float, few_steps: int = 0) -> str:
    """The summary as a person reads it at the end of a run, which was trained with `--zoom`.

    `few_steps` is how many it had, where they are too few to rely on what it believes.
    """
    has_votes = "specialists_per_class" in summary
    meaning = "of the unlabelled images" + ("; no vote counts 1/C" if has_votes else "")
    lines = [
        "",
        f"Labels for {summary['n_images'] - summary['n_labeled']:,} images from {summary['n_labeled']} given ones",
        _row("annotation accuracy", summary["annotation_accuracy"], meaning),
        _row("  majority vote alone", summary.get("majority_vote_accuracy"), "of this run's votes"),
        _row("macro precision", summary.get("annotation_macro_precision")),
        _row("macro recall", summary.get("annotation_macro_recall")),
        _row("macro F1", summary["annotation_macro_f1"]),
        _row("coverage", summary["coverage"] if has_votes else None, "images that got a label"),
        _row("mask rate", summary.get("mask_rate"), "unlabelled images it trusts its own label of"),
        _row("proxy-label accuracy", summary.get("proxy_label_accuracy"), "of those"),
        _row("test accuracy", summary["test_accuracy"], f"end model on {summary['n_test']:,} held-out images"),
    ]
    lines += _class_table(summary)
    lines += _labeling_function_lines(summary)
    lines += ["", f"  {FEW_STEPS.format(steps=few_steps)}"] if few_steps else _size_lines(summary, zoom)
    steps = ", ".join(f"{name} {minutes:.1f}" for name, minutes in summary["minutes_per_step"].items())
    lines += ["", f"{summary['minutes']:.1f} minutes ({steps}) on {summary['device']}"]
    if folder.has("soft_labels.csv"):
        lines += [f"Soft labels: {folder.path('soft_labels.csv')}"]
    lines += [f"All files: {folder.folder}"]
    return "\n".join(line for line in lines if line is not None)


def _row(name: str, value: float | None, meaning: str = "") -> str | None:
    return None if value is None else f"  {name:<22} {100 * value:6.2f} %  {meaning}".rstrip()


def _class_table(summary: dict[str, Any]) -> list[str]:
    """A line a class: scores where the truth is known, else how many images got it and how surely."""
    if not summary.get("per_class"):
        return []
    names = summary["class_names"]
    width = max(5, *(len(name) for name in names))
    scored = summary["n_evaluated"] > 0
    columns = COLUMNS_WITH_TRUTH if scored else COLUMNS_WITHOUT_TRUTH
    if scored and summary["n_evaluated"] < summary["n_images"] - summary["n_labeled"]:
        # How many are truly of a class is known of some images alone, how many got it of all.
        columns = {title: column for title, column in columns.items() if title != "truly"}
    if "specialists_per_class" in summary:
        columns = columns | LF_COLUMNS
    widths = {title: 2 + max(len(title), len("100.0")) for title in columns}
    rows = ["", f"  {'class':<{width}}  " + " ".join(f"{title:>{widths[title]}}" for title in columns)]
    for entry, name in zip(summary["per_class"], names, strict=True):
        label = entry["class"]
        found = entry | {
            "specialists": summary.get("specialists_per_class", [0] * len(names))[label],
            "effective": summary.get("effective_lfs_per_class", [0.0] * len(names))[label],
        }
        cells = [f"{shown(found[key]):>{widths[title]}}" for title, (key, shown) in columns.items()]
        rows.append(f"  {name:<{width}}  " + " ".join(cells))
    return rows


def _labeling_function_lines(summary: dict[str, Any]) -> list[str]:
    if "n_empty_sets" not in summary:
        return []
    parts = [f"{summary['n_empty_sets']} empty and {summary['n_duplicate_sets']} duplicate specialised sets"]
    parts.append(f"{100 * summary['share_of_empty_rows']:.2f} % of the images without a vote of theirs")
    if "assignment_entropy" in summary:
        parts.append(f"assignment entropy {summary['assignment_entropy']:.2f} of log K")
    if "feature_cosine" in summary:
        parts.append(f"mean cosine of two LF features {summary['feature_cosine']:.2f}")
    return ["", "  Labeling functions: " + "; ".join(parts)]


def _size_lines(summary: dict[str, Any], zoom: float) -> list[str]:
    """What the end model itself gives away, without truth (dpssl.end_model.sizes)."""
    pairs, names = summary.get("told_apart_by_size") or [], summary["class_names"]
    if not pairs or (summary["coverage"] or 0) < LEARNT:
        return []
    named = ", ".join(f"{names[pair['near']]} against {names[pair['far']]}" for pair in pairs[:MOST_PAIRS])
    lines = ["", f"  Do not rely on {named} yet: told apart by how much of the picture they fill, it seems."]
    return [*lines, f"  {AGAINST_SIZE}"] if zoom == 1 else lines


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


Columns = dict[str, tuple[str, Callable[[Any], str]]]
LF_COLUMNS: Columns = {"specialists": ("specialists", str), "effective": ("effective", "{:.2f}".format)}
COLUMNS_WITH_TRUTH: Columns = {
    "truly": ("n", str),
    "labelled so": ("n_annotated", "{:.0f}".format),
    "precision": ("precision", _percent),
    "recall": ("recall", _percent),
    "F1": ("f1", _percent),
}
COLUMNS_WITHOUT_TRUTH: Columns = {
    "labelled so": ("n_annotated", "{:.0f}".format),
    "confidence": ("mean_confidence", _percent),
}

"""Plots of the classes: how many images got each, and which are taken for which."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpssl.report.contents import Labels, RunContents
from dpssl.report.evaluation import Evaluation
from dpssl.report.figures import Drawing, bars, bars_height, draw, heat_map, marks, tick_names
from dpssl.report.names import percent, rough, short
from dpssl.report.plots_confidence import MOST_BARS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NUMBERED = 12  # classes up to which a confusion matrix has room for its numbers
MOST_NAMED = 24
LONGEST_NAME = 9


def class_plots(contents: RunContents, labels: Labels, evaluation: Evaluation | None) -> list[Drawing]:
    confusion = _true_confusion(contents, evaluation) if evaluation else _given_confusion(contents)
    return [_balance(contents, labels, evaluation), *([confusion] if confusion else []), _doubt(contents, labels)]


def _balance(contents: RunContents, labels: Labels, evaluation: Evaluation | None) -> Drawing:
    names, counts = contents.class_names, labels.counts
    order = np.arange(len(names)) if len(names) <= MOST_BARS else np.argsort(-counts, kind="stable")[:MOST_BARS]

    def paint(axes: "Axes") -> None:
        bars(axes, [short(names[label]) for label in order], counts[order])
        if evaluation is not None:
            marks(axes, evaluation.true_counts[order], "in truth (evaluation)")
        axes.set_xlabel("images")
        axes.set_xlim(left=0)

    largest, smallest = int(counts.argmax()), int(counts.argmin())
    extremes = (
        f"Most images got {short(names[largest], 40)} ({counts[largest]:,}), fewest {short(names[smallest], 40)} "
        f"({counts[smallest]:,})."
        if largest != smallest
        else f"Every class got {counts[largest]:,} images."
    )
    return draw(
        "balance",
        "Images per class",
        extremes + (f" The {MOST_BARS} largest classes." if len(names) > MOST_BARS else ""),
        paint,
        height=bars_height(len(order)),
        needs_truth=evaluation is not None,
    )


def _true_confusion(contents: RunContents, evaluation: Evaluation) -> Drawing:
    names, confusion = contents.class_names, evaluation.confusion
    mistakes = confusion - np.diag(confusion.diagonal())
    true, label = np.unravel_index(int(mistakes.argmax()), mistakes.shape)
    worst = (
        f"The most frequent mistake: {mistakes[true, label]:,} images of {short(names[true], 40)} were labelled "
        f"{short(names[label], 40)}."
        if mistakes.any()
        else "No label is wrong."
    )
    return _confusion("confusion", "Truth against label", worst, confusion, names, "true class", needs_truth=True)


def _given_confusion(contents: RunContents) -> Drawing | None:
    """The labels given by hand against what the label model says of the same images."""
    labeled, soft_labels = contents.split.labeled, contents.soft_labels
    if soft_labels is None or not (rows := labeled[soft_labels.covered[labeled]]).size:
        return None
    confusion = np.zeros((len(contents.class_names),) * 2, dtype=np.int64)
    np.add.at(confusion, (contents.split.given_labels[rows], soft_labels.soft_labels[rows].argmax(axis=1)), 1)
    agree = confusion.trace() / confusion.sum()
    text = (
        f"The truth of the other images is not known. Of the {len(rows):,} labels you gave, the soft labels "
        f"agree with {percent(agree)}; they were learnt from, so this flatters."
    )
    return _confusion("confusion", "Given label against label", text, confusion, contents.class_names, "given label")


def _doubt(contents: RunContents, labels: Labels) -> Drawing:
    """What the soft labels themselves expect: of the images labelled i, how many are of class j."""
    names = contents.class_names
    expected = np.stack([labels.soft_labels[labels.label == label].sum(axis=0) for label in range(len(names))])
    np.fill_diagonal(expected, 0)
    label, other = np.unravel_index(int(expected.argmax()), expected.shape)

    def paint(axes: "Axes") -> None:
        heat_map(axes, np.where(expected > 0.05, expected, np.nan), float(expected.max()), "images expected there")
        if len(names) <= MOST_NUMBERED:
            _write_numbers(axes, expected, "{:.1f}", least=0.05)
        _name_axes(axes, names, "label", "expected to be")

    return draw(
        "doubt",
        "Where the doubt goes",
        f"By the soft labels alone, {rough(expected[label, other])} of the images labelled {short(names[label], 40)} "
        f"are expected to be {short(names[other], 40)}: the largest doubt between two classes.",
        paint,
        height=420,
    )


def _confusion(
    key: str, title: str, text: str, confusion: NDArray[np.int64], names: tuple[str, ...], rows: str,
    needs_truth: bool = False,
) -> Drawing:  # fmt: skip
    shares = np.where(confusion > 0, confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1), np.nan)

    def paint(axes: "Axes") -> None:
        heat_map(axes, shares, 1.0, f"share of the {rows}")
        if len(names) <= MOST_NUMBERED:
            _write_numbers(axes, confusion, "{:.0f}", least=1)
        _name_axes(axes, names, rows, "label")

    return draw(key, title, text, paint, height=420, needs_truth=needs_truth)


def _write_numbers(axes: "Axes", values: NDArray[Any], form: str, least: float) -> None:
    longest = max(len(form.format(value)) for value in values.flat)
    for row, column in np.argwhere(values >= least):
        axes.text(
            column + 0.5, row + 0.5, form.format(values[row, column]), ha="center", va="center",
            fontsize=min(10.5, 32 / longest, 120 / len(values)),
        )  # fmt: skip


def _name_axes(axes: "Axes", names: tuple[str, ...], rows: str, columns: str) -> None:
    positions, written = tick_names([short(name, LONGEST_NAME) for name in names], MOST_NAMED)
    axes.set_xticks(positions, written, rotation=0 if max(map(len, written)) < 3 else 90)
    axes.set_yticks(positions, written)
    axes.tick_params(length=0)
    axes.set(xlabel=columns, ylabel=rows)

"""Plots of how sure the labels are, and, where the truth is known, whether they are right as often as they say."""

from typing import TYPE_CHECKING

import numpy as np

from dpssl.report.contents import Labels
from dpssl.report.evaluation import Evaluation
from dpssl.report.figures import BLUE, MUTED, VERMILION, Drawing, bars, bars_height, draw, marks, plain_log_scale
from dpssl.report.names import percent, probability, rough, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_BINS = 20
N_CURVE_POINTS = 200
MOST_BARS = 40


def confidence_plots(labels: Labels, class_names: tuple[str, ...], evaluation: Evaluation | None) -> list[Drawing]:
    plots = [_histogram(labels), _coverage_curve(labels, evaluation)]
    if evaluation is not None:
        plots.append(_reliability(evaluation))
    return [*plots, _expected_wrong(labels, class_names, evaluation)]


def _histogram(labels: Labels) -> Drawing:
    start = 1 / labels.soft_labels.shape[1]
    sure = float((labels.confidence >= 0.95).mean())

    def paint(axes: "Axes") -> None:
        axes.hist(labels.confidence, bins=list(np.linspace(start, 1, N_BINS + 1)), color=BLUE, rwidth=0.9)
        plain_log_scale(axes)
        axes.set_ylim(bottom=0.7)
        axes.set(xlabel="confidence", ylabel="images, log scale", xlim=(start, 1))
        axes.grid(False, axis="x")

    return draw(
        "confidence-histogram",
        "How sure the labels are",
        f"{percent(sure)} of the labels have a confidence of 95 % or more; half of all reach "
        f"{probability(float(np.median(labels.confidence)))}.",
        paint,
    )


def _coverage_curve(labels: Labels, evaluation: Evaluation | None) -> Drawing:
    """At each threshold the share of the images whose label reaches it; beside it how many of those are right."""
    thresholds = np.linspace(1 / labels.soft_labels.shape[1], 1, N_CURVE_POINTS)
    kept = _share_above(np.sort(labels.confidence), thresholds) * len(labels.rows) / labels.n_unlabeled

    def paint(axes: "Axes") -> None:
        axes.plot(thresholds, kept, color=BLUE, label="images kept")
        if evaluation is not None:
            order = np.argsort(evaluation.confidence)
            right = np.cumsum(evaluation.right[order][::-1])[::-1]  # of the rows from here on
            first = np.searchsorted(evaluation.confidence[order], thresholds)
            left = evaluation.n - first
            accuracy = np.where(left > 0, np.append(right, 0)[first] / np.maximum(left, 1), np.nan)
            axes.plot(thresholds, accuracy, color=VERMILION, linestyle="--", label="of those right (evaluation)")
            axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0))
        axes.set(xlabel="least confidence asked for", ylabel="share", ylim=(0, 1.03), xlim=(thresholds[0], 1))

    at_90 = float(np.interp(0.9, thresholds, kept))
    return draw(
        "coverage-curve",
        "Images kept at a least confidence",
        f"If you keep labels of confidence 90 % and above, {percent(at_90)} of the unlabelled images have one.",
        paint,
        height=270 if evaluation is not None else 230,
        needs_truth=evaluation is not None,
    )


def _share_above(ascending: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    return 1 - np.searchsorted(ascending, thresholds) / len(ascending)


def _reliability(evaluation: Evaluation) -> Drawing:
    """A dot per bin, its area the share of the images, its bar a binomial standard error."""
    table = evaluation.reliability
    filled = table.count > 0
    count, confidence, accuracy = table.count[filled], table.confidence[filled], table.accuracy[filled]
    error = np.sqrt(accuracy * (1 - accuracy) / count)

    def paint(axes: "Axes") -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--")
        axes.errorbar(confidence, accuracy, yerr=error, fmt="none", ecolor=MUTED, elinewidth=1)
        axes.scatter(confidence, accuracy, s=12 + 140 * count / count.sum(), color=BLUE, zorder=3)
        axes.set(xlabel="confidence", ylabel="share that is right", xlim=(0, 1.02), ylim=(0, 1.04))

    return draw(
        "reliability",
        "Is confidence earned?",
        "On the dashed line, labels of confidence p are right with probability p; below it they are too sure. "
        f"Mean distance from it (ECE): {table.ece:.3f}, over {evaluation.n:,} images; larger dots hold more of them.",
        paint,
        needs_truth=True,
    )


def _expected_wrong(labels: Labels, class_names: tuple[str, ...], evaluation: Evaluation | None) -> Drawing:
    expected = labels.expected_wrong
    order = np.argsort(-expected, kind="stable")[:MOST_BARS]

    def paint(axes: "Axes") -> None:
        bars(axes, [short(class_names[label]) for label in order], expected[order])
        if evaluation is not None:
            marks(axes, evaluation.wrong[order], "wrong in truth (evaluation)")
        axes.set_xlabel("labels expected to be wrong")
        axes.set_xlim(left=0)

    shown = f" The {MOST_BARS} classes with most of {len(class_names)}." if len(class_names) > MOST_BARS else ""
    return draw(
        "expected-wrong",
        "Expected wrong labels per class",
        f"By their own confidence, {rough(expected.sum())} of {len(labels.rows):,} labels are wrong; the bar of a "
        f"class is the sum of 1 − confidence over the images that got it.{shown}",
        paint,
        height=bars_height(len(order)),
        needs_truth=evaluation is not None,
    )

"""Plots of the labeling functions: what each may name, how often it speaks, how right it is, who agrees with whom."""

from typing import TYPE_CHECKING

import numpy as np

from dpssl.label_model.analysis import LFSummary
from dpssl.report.figures import (
    BLUE,
    GREEN,
    MUTED,
    VERMILION,
    Drawing,
    bars,
    bars_height,
    draw,
    heat_map,
    marks,
    tick_names,
    whole_numbers,
)
from dpssl.report.lf_statistics import LFStatistics
from dpssl.report.names import percent, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMED = 25
MOST_BARS = 40


def lf_plots(lfs: LFStatistics, class_names: tuple[str, ...], estimated: LFSummary | None) -> list[Drawing]:
    plots = [_specialties(lfs, class_names), _specialists(lfs, class_names), _speech(lfs)]
    if estimated is not None and np.isfinite(estimated.estimated_accuracy).any():
        plots.append(_accuracy(estimated))
    return [*plots, _agreement(lfs)]


def _specialties(lfs: LFStatistics, class_names: tuple[str, ...]) -> Drawing:
    n_lfs = len(lfs.coverage)

    def paint(axes: "Axes") -> None:
        shares = np.where(lfs.specialties, lfs.vote_shares, np.nan)
        heat_map(axes, shares, float(np.nanmax(shares, initial=0.0)), "share of the images it gives that class")
        axes.plot(
            *(np.argwhere(lfs.specialties).T[::-1] + 0.5), linestyle="none", marker=".", color=MUTED, markersize=2
        )
        positions, written = tick_names([short(name, 10) for name in class_names], MOST_NAMED)
        axes.set_xticks(positions, written, rotation=0 if max(map(len, written)) < 3 else 90)
        axes.set_yticks(*tick_names(list(map(str, range(n_lfs))), MOST_NAMED))
        axes.set(ylabel="labeling function", xlabel="class", xlim=(0, len(class_names)))
        axes.tick_params(length=0)

    return draw(
        "specialties",
        "What each labeling function specialises in",
        f"{n_lfs} labeling functions (rows) and {len(class_names)} classes (columns): a dot marks a class the function "
        f"may name, the shade how often it does. On average one may name {lfs.specialties.sum(1).mean():.1f} classes.",
        paint,
        height=max(300, min(720, 110 + 9 * n_lfs)),
    )


def _specialists(lfs: LFStatistics, class_names: tuple[str, ...]) -> Drawing:
    counts = lfs.specialties.sum(axis=0)
    few_first = np.argsort(counts, kind="stable")[:MOST_BARS]
    order = np.arange(len(counts)) if len(counts) <= MOST_BARS else few_first

    def paint(axes: "Axes") -> None:
        bars(axes, [short(class_names[label]) for label in order], counts[order])
        marks(axes, lfs.effective_lfs[order], "worth so many independent ones")
        axes.set_xlabel("labeling functions that may name it")
        axes.set_xlim(left=0)
        whole_numbers(axes)

    number = f"{counts.min()} to {counts.max()}" if counts.min() < counts.max() else f"{counts.min()}"
    shown = f" The {MOST_BARS} classes with fewest." if len(counts) > MOST_BARS else ""
    return draw(
        "specialists",
        "Specialists per class",
        f"{number} labeling functions may name a class. Functions that always agree are worth no more than one.{shown}",
        paint,
        height=bars_height(len(order)),
    )


def _speech(lfs: LFStatistics) -> Drawing:
    order = np.argsort(-lfs.coverage, kind="stable")
    at = np.arange(len(order))

    def paint(axes: "Axes") -> None:
        axes.fill_between(at, lfs.coverage[order], step="mid", color=BLUE, alpha=0.3, linewidth=0)
        axes.step(at, lfs.coverage[order], where="mid", color=BLUE, label="it votes (coverage)")
        axes.step(at, lfs.overlaps[order], where="mid", color=GREEN, linestyle=":", label="another votes too (overlap)")
        axes.step(
            at, lfs.conflicts[order], where="mid", color=VERMILION, linestyle="--", label="another differs (conflict)"
        )
        axes.set(xlabel="labeling functions, the most talkative first", ylabel="share of the images", ylim=(0, None))
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0))
        whole_numbers(axes)

    return draw(
        "speech",
        "Coverage, overlaps and conflicts",
        f"A labeling function votes on {percent(lfs.coverage.mean())} of the images on average; on "
        f"{percent(lfs.conflicts.mean())} "
        "another contradicts it.",
        paint,
        height=280,
    )


def _accuracy(estimated: LFSummary) -> Drawing:
    known = np.flatnonzero(np.isfinite(estimated.estimated_accuracy))
    order = known[np.argsort(-estimated.estimated_accuracy[known], kind="stable")]
    accuracy, error = estimated.estimated_accuracy[order], 2 * estimated.standard_error[order]
    error = np.stack([np.minimum(error, accuracy), np.minimum(error, 1 - accuracy)])  # an accuracy ends at 0 and 1

    def paint(axes: "Axes") -> None:
        axes.errorbar(
            range(len(order)), accuracy, yerr=error, fmt="o", color=BLUE, markersize=3.5, elinewidth=1.2, ecolor=MUTED
        )
        axes.set(xlabel="labeling functions, the best first", ylabel="estimated accuracy")
        axes.set_ylim(top=1 + 0.03 * (1 - axes.get_ylim()[0]))
        whole_numbers(axes)

    return draw(
        "lf-accuracy",
        "Estimated accuracy of each labeling function",
        f"From {percent(accuracy[-1])} (number {order[-1]}) to {percent(accuracy[0])} (number {order[0]}), "
        "by the label model, which sees no truth. Bars are two standard errors of sampling; the model's own error "
        "comes on top.",
        paint,
    )


def _agreement(lfs: LFStatistics) -> Drawing:
    n_lfs = len(lfs.agreement)

    def paint(axes: "Axes") -> None:
        heat_map(axes, lfs.agreement, 1.0, "share of shared images on which two agree")
        ticks = tick_names(list(map(str, range(n_lfs))), 13)
        axes.set_xticks(*ticks)
        axes.set_yticks(*ticks)
        axes.tick_params(length=0)
        axes.set(xlabel="labeling function", ylabel="labeling function")

    return draw(
        "agreement",
        "Agreement between labeling functions",
        f"Where two labeling functions both vote, they agree {percent(lfs.mean_agreement)} of the time. A pair that "
        "never votes on the same image is left empty.",
        paint,
        height=400,
    )

"""The training curves of whatever stages a run has logged: losses on one pair of axes, shares on another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpssl.report.figures import MUTED, SERIES, Drawing, draw, plain_log_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Stages drawn on one axis, one after the other; a stage that is not listed has an axis of its own.
CHAINS = {"lfs": ("mcl", "lfs")}
TITLES = {
    "warm": "Warm start, images alone",
    "lfs": "Step 1, labeling functions",
    "end": "Step 3, end model",
    "fit": "Training",
}
WORDS = {
    "loss": "loss",
    "labeled_loss": "on labelled images",
    "unlabeled_loss": "on unlabelled images",
    "soft_loss": "on soft labels",
    "pseudo_label_rate": "predictions learnt from",
    "speak_rate": "sure and naming a class",
    "coverage": "images some LF names",
    "match_rate": "views matched with the other of their image",
    "spread_share": "spread of the answers, 0 if all are the same",
}
SHARES_OF = {"match_rate": "matched views", "spread_share": "spread of the answers"}  # if not of pseudo-labels
LOG_FROM = 5  # ratio of greatest to least loss; a log scale over less has no number on its axis
NOT_CURVES = ("stage", "step", "minutes")
# What a system without an unlabelled loss, or without a threshold, logs all the same: every system has these fields.
IDLE = {"unlabeled_loss": {0.0}, "pseudo_label_rate": {0.0, 1.0}}
SHARES = ("rate", "accuracy", "coverage", "share")  # how the name of a number between 0 and 1 ends
Line = dict[str, Any]


def training_plots(log: Sequence[Line]) -> list[Drawing]:
    stages = list(dict.fromkeys(line["stage"] for line in log if "minutes" in line))
    inside = {stage for last, chain in CHAINS.items() if last in stages for stage in chain if stage != last}
    plots = []
    for stage in stages:
        if stage not in inside:
            plots += _stage_plots(stage, [name for name in CHAINS.get(stage, (stage,)) if name in stages], log)
    return plots


def _stage_plots(key: str, chain: list[str], log: Sequence[Line]) -> list[Drawing]:
    lines, changes = _joined(chain, log)
    curves = {name: _curve(name, lines) for name in dict.fromkeys(name for line in lines for name in line)}
    curves = {name: curve for name, curve in curves.items() if name not in NOT_CURVES and curve[0]}
    curves = {name: curve for name, curve in curves.items() if not _is_idle(name, curve[1])}
    shares = {name: curve for name, curve in curves.items() if name.endswith(SHARES)}
    losses = {name: curve for name, curve in curves.items() if name.endswith("loss")}
    title = TITLES.get(key, f"Stage {key}")
    plots = []
    if losses:
        plots.append(_plot(f"{key}-loss", f"{title}: loss", losses, changes, is_share=False))
    if shares:
        what = next((SHARES_OF[name] for name in shares if name in SHARES_OF), "pseudo-labels")
        plots.append(_plot(f"{key}-shares", f"{title}: {what}", shares, changes, is_share=True))
    return plots


def _joined(chain: list[str], log: Sequence[Line]) -> tuple[list[Line], list[tuple[float, str]]]:
    """The lines of the stages with steps counted on, and where one stage becomes the next."""
    lines: list[Line] = []
    changes: list[tuple[float, str]] = []
    before = 0
    for stage in chain:
        if before:
            changes.append((before, f"phase {len(changes) + 2} begins"))
        found = [line for line in log if line["stage"] == stage]
        lines += [{**line, "step": before + line["step"]} for line in found]
        before = lines[-1]["step"] if lines else 0
    return lines, changes


def _curve(name: str, lines: list[Line]) -> tuple[list[float], list[float]]:
    points = [(line["step"], line[name]) for line in lines if isinstance(line.get(name), int | float)]
    return [step for step, _ in points], [value for _, value in points]


def _is_idle(name: str, values: list[float]) -> bool:
    """Whether it stays at one of those values to the end."""
    return values[0] in IDLE.get(name, ()) and len(set(values)) == 1


def _plot(
    key: str,
    title: str,
    curves: dict[str, tuple[list[float], list[float]]],
    changes: list[tuple[float, str]],
    is_share: bool,
) -> Drawing:
    least, most = (end(end(values) for _, values in curves.values()) for end in (min, max))
    is_log = least > 0 and most > LOG_FROM * least

    def paint(axes: "Axes") -> None:
        for (name, (steps, values)), (color, dashes) in zip(curves.items(), SERIES * len(curves), strict=False):
            marker = "." if len(steps) < 3 else None
            axes.plot(steps, values, color=color, linestyle=dashes, marker=marker, label=WORDS.get(name, name))
        for step, name in changes:
            axes.axvline(step, color=MUTED, linewidth=1)
            axes.annotate(
                name, (step, 0.97), xycoords=("data", "axes fraction"), xytext=(-2, 0), textcoords="offset points",
                rotation=90, va="top", ha="right",
            )  # fmt: skip
        axes.set_xlim(left=0)
        if is_share:
            axes.set_ylim(0, 1.03)
        elif is_log:
            plain_log_scale(axes)
        axes.set(xlabel="step", ylabel="share" if is_share else "loss, log scale" if is_log else "loss")
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2)

    ends = "; ".join(
        f"{WORDS.get(name, name)} {values[0]:.3g} → {values[-1]:.3g}" for name, (_, values) in curves.items()
    )
    change = f" The line at step {changes[0][0]:,} marks the change of phase." if changes else ""
    return draw(key, title, f"From first to last: {ends}.{change}", paint, height=270)

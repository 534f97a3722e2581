"""Draw what starts that have seen no label know of the classes, and what step 1 makes of it.

Reads results/warm_start_*.json, propagated_labels.json and harness_propagation_40.json.

    python benchmarks/plot_start.py         # -> docs/images/first-labels.png

Left: images whose neighbours are mostly of their class, over the minutes of training. Middle: how many of the first
labels are right, the surest first, by a logistic regression that knows 40 labels (heads), by labels that spread among
neighbours, and by these with known class shares; the mean over label seeds, of the last from the worst to the best too.
Right: what step 1 makes of them in 6,000 steps from BYOL's start.
"""

import matplotlib
import numpy as np
from results_file import REPOSITORY, read_results

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

CURVES = {"warm_start_wide": ("SimCLR", "C0"), "warm_start_byol": ("BYOL", "C1")}
COLORS = {name: color for name, color in CURVES.values()}
SHARES = "propagation, shares"
STYLES = {"heads": "--", "propagation": ":", SHARES: "-"}

RUNS = {
    "the same, thresholds that begin with the labels": ("shares and thresholds", "-"),
    "the same, weak views left out": ("propagation, shares", (0, (6, 1))),
    "propagation, rescaled, heads first": ("propagation", ":"),
    "propagation with a veto, rescaled, heads first": ("propagation, veto", "-."),
    "no propagation, rescaled, heads first": ("none", "--"),
}


def draw_neighbors(axes: Axes) -> None:
    for run, (name, color) in CURVES.items():
        curve = read_results(run)["curve"]
        shares = [100 * line["neighbors"] for line in curve]
        axes.plot([line["minutes"] for line in curve], shares, marker=".", color=color, label=name)
    axes.set(xlabel="minutes of one H200", ylabel="most of 20 neighbours of its class (%)", ylim=(60, 92))
    axes.set_title("ResNet-18, images alone", fontsize=10)
    axes.legend(loc="lower right", fontsize=8)
    axes.grid(alpha=0.3)


def draw_first_labels(axes: Axes) -> None:
    report = read_results("propagated_labels")
    places = 100 * np.array(report["shares"])
    for start, color in COLORS.items():
        for by, style in STYLES.items():
            rows = [run for run in report["runs"] if (run["start"], run["by"]) == (start, by)]
            right = 100 * np.array([run["right_of_surest"] for run in rows])
            axes.plot(places, right.mean(0), style, color=color, label=f"{start}, {by}")
            if by == SHARES:
                axes.fill_between(places, right.min(0), right.max(0), color=color, alpha=0.15, linewidth=0)
    axes.set(xlabel="of all images, the surest (%)", ylabel="labels right (%)", ylim=(60, 100))
    axes.set_title(f"first labels from 40, {len(rows)} label seeds", fontsize=10)
    axes.legend(loc="lower left", fontsize=8)
    axes.grid(alpha=0.3)


def draw_step_one(axes: Axes) -> None:
    runs = [run for run in read_results("harness_propagation_40")["runs"] if run["name"] in RUNS]
    seeds = sorted({run["seed"] for run in runs})
    for run in runs:
        name, style = RUNS[run["name"]]
        steps, right = zip(*((line["step"], 100 * line["accuracy"]) for line in run["curve"]), strict=True)
        label = f"label seed {run['seed']}, {name}"
        color = f"C{seeds.index(run['seed']) + 2}"
        axes.plot(steps, right, linestyle=style, marker=".", color=color, label=label)
    axes.set(xlabel="steps of step 1", ylabel="labels right (%)", ylim=(0, 100))
    axes.set_title("ResNet-18 from BYOL's start, 40 labels", fontsize=10)
    axes.legend(loc="center left", bbox_to_anchor=(0, 0.535), fontsize=7.5)
    axes.grid(alpha=0.3)


def main() -> None:
    figure, panels = pyplot.subplots(1, 3, figsize=(15, 3.8), layout="constrained")
    draw_neighbors(panels[0])
    draw_first_labels(panels[1])
    draw_step_one(panels[2])
    figure.savefig(REPOSITORY / "docs" / "images" / "first-labels.png", dpi=110)


if __name__ == "__main__":
    main()

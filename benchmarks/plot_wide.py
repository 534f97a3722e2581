"""Draw what a larger network for the labeling functions does: results of label seeds 12 and 13 of CIFAR-10.

    python benchmarks/plot_wide.py         # -> docs/images/larger-network.png

Left, label seed 12: labels right over the steps, of the first 20,000 training images, or of 5,000 of them; the learning
rate of each falls over its own steps. Average pooling of harness_wide_40.json, at 35 %, is not drawn.
Right, label seed 13: the classes of a run on the larger network with and without `--zoom`.
"""

from typing import Any

import matplotlib
import numpy as np
from results_file import REPOSITORY, read_results

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

SMALL = {
    "cifar10_40_seed12_fixmatch": "FixMatch",
    "cifar10_40_seed12_fixed_threshold": "DP-SSL, --zoom 1.6, fixed threshold",
}
LARGE = {
    "FixMatch": "FixMatch",
    "FreeMatch": "FreeMatch",
    "specialists, adaptive threshold": "DP-SSL, adaptive threshold",
}
BARS = {"cifar10_40_seed13_wide": "40,000 steps", "cifar10_40_seed13_wide_zoom": "20,000 steps, --zoom 1.6"}


def draw_curves(axes: Axes) -> None:
    def line(curve: list[dict[str, Any]], style: str, name: str) -> None:
        steps = [point["step"] / 1000 for point in curve]
        axes.plot(steps, [100 * point["accuracy"] for point in curve], style, marker=".", label=name)

    for run, name in SMALL.items():
        line(read_results(run)["watched"], "--", f"{name}, Wide ResNet-28-2")
    by_name = {run["name"]: run["curve"] for run in read_results("harness_wide_40")["runs"]}
    for run, name in LARGE.items():
        line(by_name[run], "-", f"{name}, ResNet-18")
    axes.set(xlabel="steps (thousands)", ylabel="labels right (%)", ylim=(60, 100))
    axes.set_title("label seed 12, each from SimCLR's weights", fontsize=10)
    axes.legend(loc="lower right", fontsize=7)
    axes.grid(alpha=0.3)


def draw_classes(axes: Axes) -> None:
    for offset, (run, name) in zip((-0.2, 0.2), BARS.items(), strict=True):
        figures = read_results(run)["figures"]
        recall = [100 * line["recall"] for line in figures["per_class"]]
        names, places = figures["class_names"], np.arange(len(recall))
        axes.bar(places + offset, recall, 0.4, label=f"{name}: {100 * figures['annotation_accuracy']:.1f} %")
        axes.set_xticks(places, names, rotation=45, ha="right", fontsize=8)
    axes.set(ylabel="labelled rightly (%)", ylim=(0, 100))
    axes.set_title("DP-SSL on ResNet-18, label seed 13", fontsize=10)
    axes.legend(loc="lower right", fontsize=8)
    axes.grid(alpha=0.3, axis="y")


def main() -> None:
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    draw_curves(panels[0])
    draw_classes(panels[1])
    figure.savefig(REPOSITORY / "docs" / "images" / "larger-network.png", dpi=110)


if __name__ == "__main__":
    main()

"""Draw where FixMatch is ahead of step 1: results/cifar10_40_seed12_fixmatch.json and _fixed_threshold.json.

    python benchmarks/plot_gap.py          # -> docs/images/fixmatch-ahead.png

The share of the first 20,000 training images of some classes that are labelled rightly, over the steps of both runs.
"""

import matplotlib
from results_file import REPOSITORY, read_results

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

RUNS = {
    "cifar10_40_seed12_fixmatch": "FixMatch",
    "cifar10_40_seed12_fixed_threshold": "DP-SSL, --zoom 1.6, threshold .95",
}
SHOWN = ("bird", "cat", "dog", "horse")


def draw(axes: Axes, run: str) -> None:
    report = read_results(run)
    names, watched = report["figures"]["class_names"], report["watched"]
    steps = [line["step"] / 1000 for line in watched]
    for name in SHOWN:
        row = names.index(name)
        right = [100 * line["confusion"][row][row] / sum(line["confusion"][row]) for line in watched]
        axes.plot(steps, right, marker=".", label=f"{name}s")
    axes.plot(steps, [100 * line["accuracy"] for line in watched], "k--", label="all classes")
    axes.set(xlabel="steps (thousands)", ylim=(0, 100))
    axes.set_title(RUNS[run], fontsize=10)
    axes.grid(alpha=0.3)


def main() -> None:
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
    for run, axes in zip(RUNS, panels, strict=True):
        draw(axes, run)
    panels[0].set_ylabel("labels right (%)")
    panels[0].legend(loc="lower right", fontsize=8, ncols=2)
    figure.suptitle("CIFAR-10, 40 labels (seed 12), the same start", fontsize=11)
    figure.savefig(REPOSITORY / "docs" / "images" / "fixmatch-ahead.png", dpi=110)


if __name__ == "__main__":
    main()

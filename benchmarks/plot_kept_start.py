"""Draw what step 1 keeps of a warm start: results/harness_keep_40.json -> docs/images/kept-start.png.

    python benchmarks/plot_kept_start.py

Of four runs, how many labels are right by the trained weights themselves, every 250 steps.
"""

import matplotlib
from results_file import REPOSITORY, read_results

matplotlib.use("Agg")
from matplotlib import pyplot

SEED = 2
SHOWN = {  # by the name of the run
    "heads first": "heads first",
    "heads first, backbone's gradient rising over 1,000 steps": "heads first, the backbone's gradient rising",
    "heads first, convolutions 3 times as large": "heads first, larger convolutions",
    "heads first, convolutions 3 times as large, surest first over 60% of the steps, aligned": (
        "heads first, larger convolutions, surest first, aligned"
    ),
}


def main() -> None:
    runs = read_results("harness_keep_40")["runs"]
    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    for name, title in SHOWN.items():
        (run,) = (run for run in runs if run["name"] == name and run["seed"] == SEED)
        points = [(line["step"], 100 * line["accuracy_of_the_weights_themselves"]) for line in run["curve"]]
        axes.plot(*zip(*points, strict=True), marker=".", label=title)
    axes.set(xlabel="steps of the second phase", ylabel="labels right (%)", ylim=(0, 100))
    axes.set_title(f"CIFAR-10, 40 labels (seed {SEED}), from SimCLR: the trained weights themselves", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(REPOSITORY / "docs" / "images" / "kept-start.png", dpi=130)


if __name__ == "__main__":
    main()

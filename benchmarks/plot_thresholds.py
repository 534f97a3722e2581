"""Draw what a class's threshold should follow: results/harness_svhn_250.json -> docs/images/thresholds.png.

    python benchmarks/plot_thresholds.py

Of three runs on SVHN's uneven classes, how many labels are right by the averaged weights, every 1,000 steps.
"""

import matplotlib
from results_file import REPOSITORY, read_results

matplotlib.use("Agg")
from matplotlib import pyplot

FIRST_STEP = 2000  # before it nothing is learnt yet
SHOWN = {  # by the name of the run
    "fixed threshold": "one fixed threshold",
    "thresholds that follow the confidence": "lower for classes predicted without certainty",
    "thresholds that follow the shares": "lower for classes predicted rarely (FreeMatch's)",
}


def main() -> None:
    runs = {run["name"]: run for run in read_results("harness_svhn_250")["runs"]}
    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    for name, title in SHOWN.items():
        points = [(line["step"], 100 * line["accuracy"]) for line in runs[name]["curve"] if line["step"] >= FIRST_STEP]
        axes.plot(*zip(*points, strict=True), marker=".", label=title)
    axes.set(xlabel="steps of the second phase", ylabel="labels right (%)")
    axes.set_title("SVHN, 250 labels (seed 2): what lowers the threshold of a class", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(REPOSITORY / "docs" / "images" / "thresholds.png", dpi=130)


if __name__ == "__main__":
    main()

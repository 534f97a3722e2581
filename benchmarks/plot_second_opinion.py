"""Draw two runs and the one that learns from both, label seed 21: results/cifar10_40_seed21*.json.

python benchmarks/plot_second_opinion.py          # -> docs/images/second-opinion.png
"""

import matplotlib
from results_file import REPOSITORY, read_results

matplotlib.use("Agg")
from matplotlib import pyplot

RUNS = {
    "cifar10_40_seed21": ("DP-SSL", "o", "C0"),
    "cifar10_40_seed21_fixmatch": ("FixMatch", "s", "C1"),
    "cifar10_40_seed21_combined": ("the run that learns from both", "D", "C2"),
}


def main() -> None:
    figure, axes = pyplot.subplots(figsize=(7, 3.8), layout="constrained")
    for number, (name, (title, marker, color)) in enumerate(RUNS.items()):
        found = read_results(name)["figures"]
        scores = [100 * entry["f1"] for entry in found["per_class"]]
        places = [place + 0.18 * (number - 1) for place in range(len(scores))]
        label = f"{title}: {100 * found['annotation_accuracy']:.1f} % of all"
        axes.plot(places, scores, marker, color=color, label=label)
    axes.set_xticks(range(len(scores)), found["class_names"], rotation=30)
    axes.set(ylabel="F1 of the labels (%)", ylim=(75, 100))
    axes.set_title("CIFAR-10, 40 labels (seed 21)", fontsize=10)
    axes.legend(loc="lower right", fontsize=9)
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(REPOSITORY / "docs" / "images" / "second-opinion.png", dpi=110)


if __name__ == "__main__":
    main()

"""Draw how right the surest labels of two runs are, alone and together: results/agreement_cifar10_40.json.

    python benchmarks/plot_agreement.py          # -> docs/images/agreement.png

The axis to the right is the share of the unlabelled images that `dpssl combine --trust` would take.
"""

import matplotlib
from results_file import REPOSITORY, read_results

matplotlib.use("Agg")
from matplotlib import pyplot

TITLES = {
    "seed11": "one run",
    "seed11_zoom": "another, with --zoom 1.6",
    "seed11 and seed11_zoom": "both together",
    "seed11 and seed11_zoom, some without a say": "the same, no say between classes told apart by size",
}


def main() -> None:
    runs = read_results("agreement_cifar10_40")["runs"]
    figure, axes = pyplot.subplots(figsize=(6, 3.8), layout="constrained")
    for name, title in TITLES.items():
        right = runs[name]["right_of_the_surest"]
        shares = [100 * float(share) for share in right]
        axes.plot(shares, [100 * value for value in right.values()], marker="o", label=title)
    axes.set(xlabel="surest labels that are trusted (% of the images)", ylabel="of these right (%)", ylim=(87, 100.5))
    axes.set_title("CIFAR-10, 40 labels (seed 11)", fontsize=10)
    axes.legend(loc="lower left", fontsize=9)
    axes.grid(alpha=0.3)
    figure.savefig(REPOSITORY / "docs" / "images" / "agreement.png", dpi=110)


if __name__ == "__main__":
    main()

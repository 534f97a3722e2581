"""Draw how cats and dogs are mixed up: results/cifar10_40_seed11.json and zoom_answers.json.

    python benchmarks/plot_zoom.py          # -> docs/images/cats-and-dogs.png

Left: labels right over the steps. Right: what becomes of the answers of each class when the image is enlarged or made
smaller, for which no truth is needed.
"""

import json

import matplotlib
from results_file import REPOSITORY

matplotlib.use("Agg")
from matplotlib import pyplot

RUN = "cifar10_40_seed11"
CURVES = {"other_classes_right": "the other eight classes", "cat_right": "cats", "dog_right": "dogs"}
VIEWS = {"middle, part .75": "enlarged by 1.33", "smaller, part 1.4": "made smaller by 1.4"}


def main() -> None:
    results = REPOSITORY / "results"
    watched = json.loads((results / f"{RUN}.json").read_text())["watched"]
    answers = json.loads((results / "zoom_answers.json").read_text())["runs"][RUN]
    names = answers["class_names"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8), layout="constrained", width_ratios=(1, 1.1))
    for key, title in CURVES.items():
        left.plot([line["step"] / 1000 for line in watched], [100 * line[key] for line in watched], label=title)
    left.set(xlabel="steps (thousands)", ylabel="labels right (%)", ylim=(0, 100))
    left.set_title("CIFAR-10, 40 labels (seed 11)", fontsize=10)
    left.legend(loc="lower left", fontsize=8)
    for offset, (view, title) in zip((-0.2, 0.2), VIEWS.items(), strict=True):
        table = answers["becomes"][view]
        shares = [100 * (1 - row[index]) for index, row in enumerate(table)]
        right.bar([index + offset for index in range(len(names))], shares, 0.4, label=title)
        for index, row in enumerate(table):
            share, taken = max((value, names[other]) for other, value in enumerate(row) if other != index)
            if share > 0.1:
                place = (index + offset, shares[index])
                right.annotate(f"{100 * share:.0f} %\n{taken}", place, ha="center", va="bottom", fontsize=8)
    right.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    right.set(ylabel="other answer than before (%)", ylim=(0, 40))
    right.set_title("the end model's answers to a changed image, by its first answer", fontsize=10)
    right.legend(loc="upper right", fontsize=8)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(REPOSITORY / "docs" / "images" / "cats-and-dogs.png", dpi=110)


if __name__ == "__main__":
    main()

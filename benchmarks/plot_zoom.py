"""Draw how cats and dogs are mixed up, and no more with --zoom: results/cifar10_40_seed11*.json and zoom_answers.json.

    python benchmarks/plot_zoom.py          # -> docs/images/cats-and-dogs.png

Above without --zoom, below with it. Left: labels right over the steps. Right: what becomes of the answers of each class
when the image is enlarged or made smaller, for which no truth is needed.
"""

import matplotlib
from results_file import REPOSITORY, read_results

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

RUNS = {"cifar10_40_seed11": "without --zoom", "cifar10_40_seed11_zoom": "with --zoom 1.6"}
CURVES = {"cat_right": "cats", "dog_right": "dogs", "bird_right": "birds", "horse_right": "horses"}
VIEWS = {"middle, part .75": "enlarged by 1.33", "smaller, part 1.4": "made smaller by 1.4"}


def draw_curves(axes: Axes, run: str) -> None:
    watched = read_results(run)["watched"]
    for key, title in CURVES.items():
        axes.plot([line["step"] / 1000 for line in watched], [100 * line[key] for line in watched], label=title)
    axes.set(xlabel="steps (thousands)", ylabel="labels right (%)", ylim=(0, 100))
    axes.set_title(f"CIFAR-10, 40 labels (seed 11), {RUNS[run]}", fontsize=10)
    axes.legend(loc="lower left", fontsize=8, ncols=2)


def draw_answers(axes: Axes, run: str) -> None:
    answers = read_results("zoom_answers")["runs"][run]
    names = answers["class_names"]
    for offset, (view, title) in zip((-0.2, 0.2), VIEWS.items(), strict=True):
        table = answers["becomes"][view]
        shares = [100 * (1 - row[index]) for index, row in enumerate(table)]
        axes.bar([index + offset for index in range(len(names))], shares, 0.4, label=title)
        for index, row in enumerate(table):
            share, taken = max((value, names[other]) for other, value in enumerate(row) if other != index)
            if share > 0.1:
                place = (index + offset, shares[index])
                axes.annotate(f"{100 * share:.0f} %\n{taken}", place, ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    axes.set(ylabel="other answer than before (%)", ylim=(0, 40))
    axes.set_title("the end model's answers to a changed image, by its first answer", fontsize=10)
    axes.legend(loc="upper right", fontsize=8)


def main() -> None:
    figure, rows = pyplot.subplots(2, 2, figsize=(10, 7.4), layout="constrained", width_ratios=(1, 1.1))
    for run, (left, right) in zip(RUNS, rows, strict=True):
        draw_curves(left, run)
        draw_answers(right, run)
        for axes in (left, right):
            axes.grid(alpha=0.3)
    figure.savefig(REPOSITORY / "docs" / "images" / "cats-and-dogs.png", dpi=110)


if __name__ == "__main__":
    main()

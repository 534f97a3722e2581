"""What pictures of tables show: where dots, bars and bands lie, and the words below them."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer

from dpssl.paper.cells import Cell
from dpssl.paper.entries import Entry, Table
from dpssl.paper.numbers import as_range
from dpssl.paper.plots import draw, write_plots
from dpssl.paper.results import Result, read_results
from dpssl.paper.tables import table

Measure = Callable[[Sequence[Cell], Sequence[float]], dict[str, Result]]


@pytest.fixture
def measure(write_done: Callable[..., Any]) -> Measure:
    """Writes the test accuracies of cells and reads them as results."""

    def measure(cells: Sequence[Cell], accuracies: Sequence[float]) -> dict[str, Result]:
        for cell, accuracy in zip(cells, accuracies, strict=True):
            folder = write_done(cell, {"test_accuracy": accuracy})
        return read_results(folder, cells)[0]

    return measure


def one_entry(small_table: Table, cells: Sequence[Cell], plot: str = "dots", **changed: Any) -> Table:
    entry = dataclasses.replace(Entry("row", "10 labels", tuple(cells), "test_accuracy", "percent", x=40), **changed)
    return dataclasses.replace(small_table, entries=(entry,), plot=plot)


def dots(panel: Axes) -> list[tuple[float, str]]:
    """Where the dots of a panel lie, with their filling."""
    marked = [line for line in panel.lines if line.get_marker() == "o"]
    return [(round(float(line.get_xdata()[0]), 6), str(line.get_markerfacecolor())) for line in marked]


def bars(panel: Axes) -> list[tuple[float, float]]:
    """From where to where the bars of a panel reach."""
    drawn = [found for found in panel.containers if isinstance(found, ErrorbarContainer)]
    segments = [segment for found in drawn for segment in found[2][0].get_segments()]
    return [(round(float(start), 6), round(float(end), 6)) for (start, _), (end, _) in segments]


def bands(panel: Axes) -> np.ndarray:
    """The heights of all corners of a panel's bands."""
    return np.concatenate([path.vertices[:, 1] for band in panel.collections for path in band.get_paths()])


def svg(wanted: Table, results: dict[str, Result], folder: Path) -> str:
    return write_plots(wanted, results, folder, "drawn")[1].read_text(encoding="utf-8")


def test_printed_ranges_as_numbers() -> None:
    assert as_range("48.58, 64.28, 85.32") == (48.58, 64.28, 85.32)
    assert as_range("61.32 to 83.7") == (61.32, None, 83.7)
    assert as_range("6.54±0.98") is None
    assert as_range("2.74") is None
    assert as_range("") is None


def test_a_range_is_drawn_from_the_least_to_the_greatest_about_the_median(
    small_table: Table, cells: list[Cell], measure: Measure
) -> None:
    panel = draw(one_entry(small_table, cells, statistic="range"), measure(cells, (0.6, 0.9, 0.7))).axes[0]
    assert [place for place, _ in dots(panel)] == [70.0]
    assert bars(panel) == [(60.0, 90.0)]


def test_a_mean_is_drawn_with_its_deviation_and_one_run_without(
    small_table: Table, cells: list[Cell], measure: Measure
) -> None:
    results = measure(cells, (0.6, 0.9, 0.6))
    panel = draw(one_entry(small_table, cells), results).axes[0]
    assert [place for place, _ in dots(panel)] == [70.0]
    assert bars(panel) == [pytest.approx((70 - 300**0.5, 70 + 300**0.5))]
    for statistic in ("mean", "range"):
        alone = draw(one_entry(small_table, cells[:1], statistic=statistic), results).axes[0]
        assert [place for place, _ in dots(alone)] == [60.0]
        assert bars(alone) == []


def test_the_papers_ranges_are_drawn_hollow_and_without_a_median_it_does_not_print() -> None:
    panel = draw(table("barely"), {}).axes[0]
    assert dots(panel) == [(64.28, "white")]
    assert bars(panel) == [(48.58, 85.32), (61.32, 83.7)]


def test_a_panel_without_numbers_says_so() -> None:
    accuracy, empty_sets, *_ = draw(table("table4"), {}).axes
    assert [text.get_text() for text in empty_sets.texts] == ["not run"]
    assert list(empty_sets.get_xticks()) == []
    assert [text.get_text() for text in accuracy.texts] == []


@pytest.mark.parametrize("name", ["table1", "table5", "fig1", "fig3", "fig-specialists"])
def test_a_picture_without_numbers_says_so_in_every_panel(name: str) -> None:
    for panel in draw(table(name, "small"), {}).axes:
        assert [text.get_text() for text in panel.texts] == ["not run"]


def test_on_a_logarithmic_axis_zero_and_bands_below_it_stand_at_the_foot(small_table: Table, measure: Measure) -> None:
    none_wrong, uncertain = small_table.entries[2].cells, small_table.entries[0].cells
    results = measure([*none_wrong, *uncertain], (1.0, 1.0, 1.0, 1.0, 1.0, 0.94))  # errors 0 ± 0 and 2 ± 3.5 %
    entries = [
        Entry(row, f"{x}", cells, "test_accuracy", x=x)
        for row, cells in (("zero", none_wrong), ("uncertain", uncertain))
        for x in (40, 250)
    ]
    panel = draw(dataclasses.replace(small_table, entries=tuple(entries), plot="lines"), results).axes[0]
    zero, two = (line.get_ydata()[0] for line in panel.lines)
    assert two == pytest.approx(2)
    assert zero == pytest.approx(1)  # half of the smallest number above 0
    labels = dict(zip(panel.get_yticks(), (text.get_text() for text in panel.get_yticklabels()), strict=True))
    assert labels[zero] == "0"
    assert bands(panel).min() == zero
    assert bands(panel).max() == pytest.approx(2 + 12**0.5)
    assert panel.get_ylim()[0] < zero


def test_a_logarithmic_axis_has_no_zero_where_all_lies_above(
    small_table: Table, cells: list[Cell], measure: Measure, tmp_path: Path
) -> None:
    wanted, results = one_entry(small_table, cells, "lines", shown_as="error"), measure(cells, (0.94, 0.95, 0.96))
    panel = draw(wanted, results).axes[0]
    assert "0" not in [text.get_text() for text in panel.get_yticklabels()]
    assert (bands(panel).min(), bands(panel).max()) == pytest.approx((4, 6))
    assert "the axis is cut" not in svg(wanted, results, tmp_path)


def test_a_band_that_ends_just_above_zero_does_not_stretch_the_axis(
    small_table: Table, cells: list[Cell], measure: Measure, tmp_path: Path
) -> None:
    results = measure(cells[:2], (1 - 0.02 - 0.0141, 1 - 0.02 + 0.0141))  # error 2 ± 1.994 %
    wanted = one_entry(small_table, cells, "lines", shown_as="error")
    assert bands(draw(wanted, results).axes[0]).min() == pytest.approx(0.2)
    assert "; the axis is cut: what is below 0.2 is drawn at 0.<" in svg(wanted, results, tmp_path)


@pytest.mark.parametrize(
    ("plot", "words"),
    [
        ("dots", "Ours: each number from 3 runs; bars: one standard deviation."),
        ("lines", "Ours: each number from 3 runs; bands: one standard deviation; hollow: the paper's."),
        ("bars", "Ours: each number from 3 runs; bars: one standard deviation."),
        ("grid", "Ours: each number from 3 runs; ±: one standard deviation; in brackets: the paper's."),
    ],
)
def test_the_footer_says_runs_bars_and_budget(
    plot: str, words: str, small_table: Table, cells: list[Cell], measure: Measure, tmp_path: Path
) -> None:
    text = svg(one_entry(small_table, cells, plot, paper="75"), measure(cells, (0.6, 0.9, 0.7)), tmp_path)
    assert f">{words}<" in text
    assert ">Budget: 8 steps a cell for every method; " in text


def test_the_footer_counts_runs_that_differ_and_bars_that_are_drawn(
    small_table: Table, cells: list[Cell], measure: Measure, tmp_path: Path
) -> None:
    others = small_table.entries[2].cells
    results = measure([*cells, others[0]], (0.6, 0.9, 0.7, 0.8))
    assert ">Ours: each number from 1 to 3 runs; bars: one standard deviation.<" in svg(small_table, results, tmp_path)
    assert ">Ours: each number from 1 run.<" in svg(one_entry(small_table, others), results, tmp_path)
    ranged = svg(one_entry(small_table, cells, statistic="range"), results, tmp_path)
    assert "runs; bars of 10 labels: from the least to the greatest, with the median.<" in ranged


def test_the_footer_has_the_papers_budget_beside_its_numbers(tmp_path: Path) -> None:
    papers_steps = ">The paper trained for 1,048,576 steps.<"
    assert papers_steps in svg(table("table4"), {}, tmp_path)
    assert papers_steps not in svg(table("annotation"), {}, tmp_path)  # which the paper does not have


def test_without_runs_the_footer_names_no_budget_of_ours(small_table: Table, tmp_path: Path) -> None:
    text = svg(small_table, {}, tmp_path)
    assert ">Ours: nothing was run; bars: one standard deviation.<" in text
    assert "Budget" not in text
    assert ">ours<" not in text
    barely = svg(table("barely"), {}, tmp_path)
    assert "a bar without a dot: the paper prints" in barely


def test_a_grid_has_the_deviation_in_smaller_print_where_there_are_several_runs(
    small_table: Table, cells: list[Cell], measure: Measure
) -> None:
    results = measure(cells, (0.6, 0.9, 0.6))
    mean, deviation = draw(one_entry(small_table, cells, "grid"), results).axes[0].texts
    assert (mean.get_text(), deviation.get_text()) == ("70.0", "±17.3")
    assert deviation.get_fontsize() < mean.get_fontsize()
    assert deviation.xyann[1] < mean.xyann[1]  # below it
    alone = draw(one_entry(small_table, cells[:1], "grid"), results).axes[0]
    assert [text.get_text() for text in alone.texts] == ["60.0"]


def test_panels_have_the_line_of_the_default_only_where_they_share_it(
    write_done: Callable[..., Any], tmp_path: Path
) -> None:
    wanted = table("fig3", "small", 8, [1])
    for cell in wanted.cells:
        folder = write_done(cell, {"annotation_accuracy": 0.97 if cell.variant == "default" else 0.9})
    results = read_results(folder, wanted.cells)[0]
    for panel in draw(wanted, results).axes:
        dashed = [line for line in panel.lines if line.get_linestyle() == "--"]
        assert [line.get_ydata()[0] for line in dashed] == [pytest.approx(3)]
    assert "; dashed: the default.<" in svg(wanted, results, tmp_path)
    over_lfs = tuple(entry for entry in wanted.entries if entry.column == "over K")
    narrowed = dataclasses.replace(wanted, entries=over_lfs)
    assert [line.get_linestyle() for line in draw(narrowed, results).axes[0].lines] == ["-"]
    assert "dashed" not in svg(narrowed, results, tmp_path)

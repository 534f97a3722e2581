"""What pictures of tables show: where dots, bars and bands lie, and the words below them."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.container import ErrorbarContainer

from dpssl.paper.cells import Cell
from dpssl.paper.entries import Entry, Table
from dpssl.paper.numbers import as_range
from dpssl.paper.plot_values import footer
from dpssl.paper.plots import draw, write_plots
from dpssl.paper.results import Result, read_results
from dpssl.paper.tables import METHODS, table

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


def words(panel: Axes) -> list[str]:
    return [text.get_text() for text in panel.texts]


def bars(panel: Axes) -> list[tuple[float, float]]:
    """From where to where the bars of a panel reach."""
    drawn = [found for found in panel.containers if isinstance(found, ErrorbarContainer)]
    segments = [segment for found in drawn for segment in found[2][0].get_segments()]
    return [(round(float(start), 6), round(float(end), 6)) for (start, _), (end, _) in segments]


def bands(panel: Axes) -> np.ndarray:
    """The heights of all corners of a panel's bands."""
    return np.concatenate([path.vertices[:, 1] for band in panel.collections for path in band.get_paths()])


def of_errors(small_table: Table, measure: Measure, *errors: float) -> tuple[Table, dict[str, Result]]:
    """A table of a column, a row and a run an error, with the results it shows."""
    one_run = [Cell("digits", "digits", 40, method, 1, 8) for method in list(METHODS)[: len(errors)]]
    entries = tuple(Entry(cell.method, "40 labels", (cell,), "test_accuracy") for cell in one_run)
    narrowed = dataclasses.replace(small_table, entries=entries)
    return narrowed, measure(one_run, [1 - error / 100 for error in errors])


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


def test_panels_of_which_nothing_was_run_are_left_out_but_for_the_papers_numbers() -> None:
    panels = draw(table("table4"), {}).axes
    assert [panel.get_title() for panel in panels] == ["40 labels: accuracy (%)", "250 labels: accuracy (%)"]
    assert not any("not run" in words(panel) for panel in panels)


@pytest.mark.parametrize("name", ["table1", "table5", "fig1", "fig3", "fig-specialists"])
def test_a_picture_without_numbers_says_so_in_every_panel(name: str) -> None:
    drawn = table(name, "small")
    for panel in draw(drawn, {}).axes:
        assert words(panel) == ["not run"]
        if drawn.plot in ("dots", "lines", "panels"):
            assert list(panel.get_xticks()) == []


def test_a_row_without_a_number_says_so_where_others_have_some() -> None:
    *_, last = draw(table("table3"), {}).axes
    assert words(last).count("not run") == 2  # the paper's label model and the surest, which the paper does not print
    assert words(last).count("no such number") == 2  # proxy labels are asked of one panel alone


def test_numbers_stand_beside_their_dots_with_the_decimals_of_the_table(
    small_table: Table, cells: list[Cell], measure: Measure
) -> None:
    panel = draw(one_entry(small_table, cells, paper="75.5±2.00"), measure(cells, (0.6, 0.9, 0.6))).axes[0]
    ours, papers = panel.texts
    assert (ours.get_text(), papers.get_text()) == ("70.00", "75.50")
    assert [text.xy[0] for text in (ours, papers)] == pytest.approx([end for _, end in bars(panel)])


def test_errors_that_differ_by_a_large_factor_have_a_logarithmic_axis(small_table: Table, measure: Measure) -> None:
    panel = draw(*of_errors(small_table, measure, 25, 2.6, 2.8)).axes[0]
    assert panel.get_xscale() == "log"
    assert words(panel) == ["25.00", "2.60", "2.80"]
    near, all_of_it = 2.8 / 2.6, panel.get_xlim()[1] / panel.get_xlim()[0]
    assert np.log(near) / np.log(all_of_it) > 0.015  # (2.8 - 2.6) / 25 of a linear axis is .008
    assert draw(*of_errors(small_table, measure, 4, 2.6, 2.8)).axes[0].get_xscale() == "linear"


def test_a_logarithmic_axis_of_dots_has_a_place_for_zero(small_table: Table, measure: Measure) -> None:
    panel = draw(*of_errors(small_table, measure, 25, 2.5, 0)).axes[0]
    *_, (zero, _) = dots(panel)
    assert words(panel)[2] == "0.00"
    assert panel.get_xlim()[0] < zero < 2.5
    assert panel.get_xticklabels()[0].get_text() == "0"
    assert panel.get_xticks()[0] == pytest.approx(zero)


def test_bars_end_where_numbers_must(
    small_table: Table, cells: list[Cell], measure: Measure, write_done: Callable[..., Any], tmp_path: Path
) -> None:
    wanted, results = one_entry(small_table, cells), measure(cells, (1.0, 1.0, 0.94))  # 98 ± 3.46 %
    for plot in ("dots", "panels"):
        assert bars(draw(dataclasses.replace(wanted, plot=plot), results).axes[0])[0][1] <= 100
    assert "Bars are cut at 100 %, past which nothing can be." in svg(wanted, results, tmp_path)
    assert max(draw(wanted, results).axes[0].get_xticks()) <= 100
    for cell, n_empty in zip(cells, (0, 0, 3), strict=True):  # 1 ± 1.73
        folder = write_done(cell, {"n_empty_sets": n_empty})
    counted = one_entry(small_table, cells, figure="n_empty_sets", shown_as="count")
    results = read_results(folder, cells)[0]
    assert bars(draw(counted, results).axes[0]) == [pytest.approx((0, 1 + 3**0.5))]
    assert min(draw(counted, results).axes[0].get_xticks()) >= 0
    assert "Bars are cut at 0, past which nothing can be." in svg(counted, results, tmp_path)


def test_many_panels_are_wrapped_and_the_numbers_below_them_do_not_touch() -> None:
    for name, n_beside in (("table1", 3), ("table3", 3), ("table4", 2)):
        figure = draw(table(name), {})
        FigureCanvasAgg(figure).draw()
        assert figure.get_figwidth() < 10
        corners = [panel.get_position() for panel in figure.axes]
        assert len({round(corner.x0, 3) for corner in corners}) == n_beside
        assert len({round(corner.y0, 3) for corner in corners}) == len(figure.axes) / n_beside
        boxes = [label.get_window_extent() for panel in figure.axes for label in panel.get_xticklabels()]
        assert not any(box.overlaps(other) for n, box in enumerate(boxes) for other in boxes[:n])


def test_on_a_logarithmic_axis_zero_and_bands_below_it_stand_at_the_foot(small_table: Table, measure: Measure) -> None:
    none_wrong, uncertain = small_table.entries[2].cells, small_table.entries[0].cells
    results = measure([*none_wrong, *uncertain], (1.0, 1.0, 1.0, 1.0, 1.0, 0.94))  # errors 0 ± 0 and 2 ± 3.5 %
    entries = [
        Entry(row, f"{x}", cells, "test_accuracy", x=x)
        for row, cells in (("zero", none_wrong), ("uncertain", uncertain))
        for x in (40, 250)
    ]
    panel = draw(dataclasses.replace(small_table, entries=tuple(entries), plot="lines"), results).axes[0]
    drawn = {line.get_label(): line.get_ydata()[0] for line in panel.lines}
    zero, two = drawn["zero"], drawn["uncertain"]
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
        ("lines", "Ours: each number from 3 runs; bars: one standard deviation; hollow: the paper's."),
        ("bars", "Ours: each number from 3 runs; bars: one standard deviation."),
        ("grid", "Ours: each number from 3 runs; ±: one standard deviation; in brackets: the paper's."),
    ],
)
def test_the_footer_says_runs_bars_and_budget(
    plot: str, words: str, small_table: Table, cells: list[Cell], measure: Measure, tmp_path: Path
) -> None:
    text = svg(one_entry(small_table, cells, plot, paper="75"), measure(cells, (0.6, 0.9, 0.7)), tmp_path)
    assert f">{words}<" in text
    assert ">Budget: 8 steps a cell.<" in text


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


def test_the_footer_says_which_truth_took_part(measure: Measure, tmp_path: Path) -> None:
    of_cifar10 = table("fig1", seeds=[1])
    (dp_ssl,) = [entry for entry in of_cifar10.entries if entry.row == "DP-SSL" and entry.x == 40]
    drawn = dataclasses.replace(of_cifar10, entries=(dp_ssl,))
    assert "chosen with the truth of label seed 1, at 40 labels.<" in svg(
        drawn, measure(dp_ssl.cells, (0.8,)), tmp_path
    )


def test_a_panel_of_which_nothing_was_run_is_left_out_and_named(
    small_table: Table, cells: list[Cell], measure: Measure, tmp_path: Path
) -> None:
    results = measure(cells, (0.9, 0.9, 0.9))  # no empty sets, of which the second column would tell
    entries = tuple(dataclasses.replace(entry, paper="") for entry in small_table.entries)
    text = svg(dataclasses.replace(small_table, entries=entries), results, tmp_path)
    assert ">Left out, since nothing of it was run: 250.<" in text
    assert ">250<" not in text
    assert ">40 | labels<" in text
    nothing = svg(dataclasses.replace(small_table, entries=entries), {}, tmp_path)
    assert nothing.count(">not run<") == 2
    assert "Left out" not in nothing


def test_without_runs_the_footer_names_no_budget_of_ours(small_table: Table, tmp_path: Path) -> None:
    text = svg(small_table, {}, tmp_path)
    assert ">Ours: nothing was run; the paper's bars: one standard deviation.<" in text
    assert "Budget" not in text
    assert ">ours<" not in text
    assert "; a bar without a dot: the paper prints no median." in footer(table("barely"), {})[0]


def test_a_grid_has_the_deviation_in_smaller_print_where_there_are_several_runs(
    small_table: Table, cells: list[Cell], measure: Measure
) -> None:
    results = measure(cells, (0.6, 0.9, 0.6))
    mean, deviation = draw(one_entry(small_table, cells, "grid"), results).axes[0].texts
    assert (mean.get_text(), deviation.get_text()) == ("70.00", "±17.32")
    assert deviation.get_fontsize() < mean.get_fontsize()
    assert deviation.xyann[1] < mean.xyann[1]  # below it
    alone = draw(one_entry(small_table, cells[:1], "grid"), results).axes[0]
    assert words(alone) == ["60.00"]


def test_a_far_number_of_a_grid_has_no_place_on_its_scale_of_colours(
    small_table: Table, measure: Measure, tmp_path: Path
) -> None:
    wanted, results = of_errors(small_table, measure, 10.6, 3.4, 3.3, 3.2, 3.1, 3.0, 2.9)
    shown = [dataclasses.replace(entry, shown_as="percent") for entry in wanted.entries]
    wanted = dataclasses.replace(wanted, entries=tuple(shown), plot="grid")
    figure = draw(wanted, results)
    panel, beside = figure.axes
    (image,) = panel.images
    assert image.get_clim() == pytest.approx((96.6, 97.1))
    far, lightest = image.to_rgba([89.4, 96.6])
    assert far[0] > far[2]
    assert lightest[0] < lightest[2]
    assert words(panel)[:2] == ["↓ 89.40", "96.60"]
    assert beside.get_ylabel() == "mean (%)"
    assert "Orange with an arrow: below the scale of colours." in svg(wanted, results, tmp_path)
    near = dataclasses.replace(wanted, entries=wanted.entries[1:])
    assert draw(near, results).axes[0].images[0].get_clim() == pytest.approx((96.6, 97.1))
    assert "Orange" not in svg(near, results, tmp_path)


def test_the_footer_says_whose_bars_they_are(
    small_table: Table, cells: list[Cell], measure: Measure, tmp_path: Path
) -> None:
    results, wanted = measure(cells, (0.6, 0.9, 0.7)), one_entry(small_table, cells, paper="75.00±2.00")
    one_run = one_entry(small_table, cells[:1], paper="75.00±2.00")
    papers_alone = "; the paper's bars: one standard deviation.<"
    assert f">Ours: each number from 1 run{papers_alone}" in svg(one_run, results, tmp_path)
    assert f">Ours: nothing was run{papers_alone}" in svg(one_run, {}, tmp_path)
    assert ">Ours: each number from 3 runs; bars: one standard deviation.<" in svg(wanted, results, tmp_path)


def test_equal_bars_have_the_papers_beside_them_in_words(write_done: Callable[..., Any], tmp_path: Path) -> None:
    wanted = table("fig-specialists", "small", 8, [1, 2])
    for cell in wanted.cells:
        folder = write_done(cell, {"specialists_per_class": [6] * 10})
    text = svg(wanted, read_results(folder, wanted.cells)[0], tmp_path)
    assert ">Every class has 6 in every run.<" in text
    assert ">Of K = 30 LFs; of K = 50 on CIFAR-10 the paper's text names 4 to 15, for 3 of its classes.<" in text


def test_lines_have_looks_of_their_own_and_only_the_one_that_matters_a_band(
    write_done: Callable[..., Any], tmp_path: Path
) -> None:
    wanted = table("fig1", "small", 8, [1, 2])
    for cell in wanted.cells:
        place = list(METHODS).index(cell.method)
        folder = write_done(cell, {"test_accuracy": 0.9 - 0.01 * place - 0.002 * cell.seed})
    results = read_results(folder, wanted.cells)[0]
    panel = draw(wanted, results).axes[0]
    drawn = [line for line in panel.lines if not line.get_label().startswith("_")]
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn}) == len(drawn)
    assert len({line.get_marker() for line in drawn}) == len(drawn)
    assert sorted(drawn, key=lambda line: -line.get_ydata()[-1]) == drawn  # as in the legend
    starts = [line.get_xdata()[0] for line in drawn]
    assert starts == sorted(set(starts))  # side by side
    assert min(starts) > 40 / 2
    assert max(starts) < 40 * 2
    assert len([band for band in panel.collections if isinstance(band, PolyCollection)]) == 1
    black = next(line for line in drawn if line.get_label() == wanted.emphasis)
    assert bands(panel).max() == pytest.approx(black.get_ydata()[0] + 0.02**0.5)
    assert black.get_linewidth() > 2 * max(line.get_linewidth() for line in drawn if line is not black)
    assert len([found for found in panel.containers if isinstance(found, ErrorbarContainer)]) == 2 * len(drawn)
    footer = ">Ours: each number from 2 runs; bars, and the band of DP-SSL: one standard deviation.<"
    assert footer in svg(wanted, results, tmp_path)


def test_curves_and_grids_compare_the_seeds_that_all_their_points_have(
    write_done: Callable[..., Any], tmp_path: Path
) -> None:
    wanted = table("fig3", "small", 8, [1, 2, 3])
    for cell in wanted.cells:
        if cell.variant == "default" or cell.seed < 3:  # the default alone has a third seed, which is far better
            folder = write_done(cell, {"annotation_accuracy": 0.99 if cell.seed == 3 else 0.9})
    results = read_results(folder, wanted.cells)[0]
    for panel in draw(wanted, results).axes:
        assert {round(y, 6) for line in panel.lines for y in line.get_ydata() if line.get_marker() == "o"} == {10}
    footer = ">Seeds 1 and 2, which all numbers have; 3, which some have, left out.<"
    text = svg(wanted, results, tmp_path)
    assert footer in text
    assert ">Ours: each number from 2 runs; " in text
    grid = table("table5", "small", 8, [1, 2, 3])
    assert not {text for text in words(draw(grid, results).axes[0]) if text.startswith("93")}  # the mean of three
    assert footer in svg(grid, results, tmp_path)
    narrowed = dataclasses.replace(wanted, entries=wanted.entries[:1])
    assert ">Seeds 1 and 2.<" in svg(narrowed, results, tmp_path)
    alone = [dataclasses.replace(entry, cells=entry.cells[n : n + 1]) for n, entry in enumerate(wanted.entries[:2])]
    apart = dataclasses.replace(wanted, entries=tuple(alone))
    assert ">No seed is common to all numbers, so that each has its own: " in svg(apart, results, tmp_path)


def test_panels_name_what_they_are_over_and_have_a_tick_for_each_value_that_was_run(
    write_done: Callable[..., Any],
) -> None:
    wanted = table("fig3", "small", 8, [1])
    for cell in wanted.cells:
        if dict(cell.settings).get("specialist_ratio") != 0.4:
            folder = write_done(cell)
    over_lfs, over_ratio = draw(wanted, read_results(folder, wanted.cells)[0]).axes
    assert (over_lfs.get_xlabel(), over_ratio.get_xlabel()) == ("K", "ρ")
    assert list(over_lfs.get_xticks()) == [10, 20, 30, 40, 50, 60]
    assert [text.get_text() for text in over_ratio.get_xticklabels()] == ["0.1", "0.2", "0.3", "0.5", "1"]


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

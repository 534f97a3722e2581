"""Tables as text and pictures."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpssl.paper.entries import Entry, Table
from dpssl.paper.plots import write_plots
from dpssl.paper.render import entry_text, escape_latex, escape_markdown, latex, markdown
from dpssl.paper.results import read_results, write_result
from dpssl.paper.tables import TABLES, table


@pytest.fixture
def results(small_table: Table, write_done: Callable[..., Any]) -> dict[str, Any]:
    """Two of FixMatch's three cells are done, one of UDA's has failed."""
    write_done(small_table.cells[0], {"test_accuracy": 0.94, "n_empty_sets": 2})
    folder = write_done(small_table.cells[1], {"test_accuracy": 0.92, "n_empty_sets": 3})
    write_result(folder, small_table.cells[3], small_table.cells[3].settings_in_use(), {}, error="a <b> & c_d")
    return read_results(folder, small_table.cells)[0]


def test_markdown(small_table: Table, results: dict[str, Any]) -> None:
    assert markdown(small_table, results, ["x.json: is damaged; not counted"]) == (
        "### Table 9: 100% made up\n"
        "\n"
        "|  | 40 \\| labels | 250 |\n"
        "| --- | ---: | ---: |\n"
        "| Π\\_1 & co | 7.00 ± 1.41 (2) [6.54 ± 0.98] | 2.5 ± 0.7 (2) |\n"
        "| other | [5.07 ± 0.65] |  |\n"
        "\n"
        "- Ours: mean ± sample standard deviation over seeds (number of runs) [the paper's number].\n"
        "- Budget: 8 steps a cell.\n"
        "- A small stand-in: scikit-learn's digits (8x8 pixels) and a Wide ResNet-10-1; the paper has no such "
        "numbers.\n"
        "- A note.\n"
        "- 2 of 6 cells were run, 0.5 minutes each, on cpu, 1 thread, by dpssl 0.1.0 at commit abc.\n"
        "- Failed: digits-40\\_uda\\_8-steps\\_seed-1 (a &lt;b> & c\\_d).\n"
        "- Note: x.json: is damaged; not counted.\n"
    )


def test_runs_of_several_commits_are_counted(small_table: Table, results: dict[str, Any]) -> None:
    mixed = {name: dataclasses.replace(result, commit=name) for name, result in results.items()}
    assert "on cpu, 1 thread, by dpssl 0.1.0 at 2 commits, which the files name." in markdown(small_table, mixed)
    changed = {name: dataclasses.replace(result, commit="0123456789+") for name, result in results.items()}
    assert "by dpssl 0.1.0 at commit 01234567 with changes." in markdown(small_table, changed)
    gone_on = {name: dataclasses.replace(result, commit="0123456789, 9876543210") for name, result in results.items()}
    assert "by dpssl 0.1.0 at 2 commits, which the files name." in markdown(small_table, gone_on)
    unknown = {name: dataclasses.replace(result, commit=None) for name, result in results.items()}
    assert "by dpssl 0.1.0 at an unknown commit." in markdown(small_table, unknown)


def test_latex(small_table: Table, results: dict[str, Any]) -> None:
    lines = latex(small_table, results).splitlines()
    assert lines[2].startswith(r"  \caption{Table 9: 100\% made up. Ours: mean $\pm$ sample")
    assert r"(a \textless{}b\textgreater{} \& c\_d)" in lines[2]
    assert [line.strip() for line in lines[3:]] == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"& 40 | labels & 250 \\",
        r"\midrule",
        r"$\Pi$\_1 \& co & 7.00 $\pm$ 1.41 (2) [6.54 $\pm$ 0.98] & 2.5 $\pm$ 0.7 (2) \\",
        r"other & [5.07 $\pm$ 0.65] &  \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_a_wide_latex_table_is_made_to_fit_the_text() -> None:
    lines = latex(table("table1", "paper"), {}).splitlines()
    assert r"  \resizebox{\linewidth}{!}{%" in lines
    assert r"  \end{tabular}}" in lines
    rows = [line for line in lines if line.endswith(r"\\")]
    assert [line.count("&") for line in rows] == [9] * 16


def test_the_budget_says_where_the_end_model_is_left_out() -> None:
    """Tables of labels alone do not train it."""
    assert "300 for its end model, which is left out here, after" in markdown(table("table5", "small"), {})
    assert "300 for its end model, which is left out here, after" in markdown(table("table3", "small"), {}), (
        "the other systems of the table, which have none of their own, do not count"
    )
    assert "300 for its end model, after" in markdown(table("table1", "small"), {})


def test_escapes_leave_nothing_to_the_reader() -> None:
    assert escape_latex("a\\b{c}~^#$\n d") == r"a\textbackslash{}b\{c\}\textasciitilde{}\textasciicircum{}\#\$ d"
    assert escape_markdown("a|b\n`c` <script> \\ *d*") == "a\\|b \\`c\\` &lt;script> \\\\ \\*d\\*"


def test_the_legend_explains_the_papers_numbers_where_there_are_any(small_table: Table) -> None:
    assert "(number of runs) [the paper's number]." in markdown(small_table, {})
    assert "(number of runs).\n" in markdown(table("table1", "small"), {})


def test_a_cell_counts_as_run_where_a_number_of_it_is_shown(small_table: Table, write_done: Callable[..., Any]) -> None:
    """Another table may have asked for the labels alone, of which a table of test errors shows nothing."""
    folder = write_done(small_table.cells[0], {"test_accuracy": None})
    results, _ = read_results(folder, small_table.cells)
    assert "None of 6 cells was run." in markdown(small_table, results)
    entries = tuple(dataclasses.replace(entry, figure="annotation_accuracy") for entry in small_table.entries)
    assert "1 of 6 cells was run" in markdown(dataclasses.replace(small_table, entries=entries), results)


def test_a_cell_not_run_is_blank(small_table: Table) -> None:
    assert [entry_text(entry, {}) for entry in small_table.entries] == ["[6.54 ± 0.98]", "", "[5.07 ± 0.65]"]
    assert "None of 6 cells was run." in markdown(small_table, {})


def test_one_run_has_no_deviation_and_a_range_shows_three_numbers(
    small_table: Table, write_done: Callable[..., Any]
) -> None:
    cells = tuple(small_table.cells[:3])
    for cell, accuracy in zip(cells, (0.6, 0.9, 0.7), strict=True):
        folder = write_done(cell, {"test_accuracy": accuracy})
    found, _ = read_results(folder, cells)
    assert entry_text(Entry("r", "c", cells[:1], "test_accuracy", "percent"), found) == "60.00 (1)"
    shown = entry_text(Entry("r", "c", cells, "test_accuracy", "percent", "61.32 to 83.7", "range"), found)
    assert shown == "60.00, 70.00, 90.00 (3) [61.32 to 83.7]"


def test_plots_are_written_and_equal_numbers_give_equal_bytes(
    small_table: Table, results: dict[str, Any], tmp_path: Path
) -> None:
    png, svg = write_plots(small_table, results, tmp_path, "table9-small")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "Table 9: 100% made up" in text
    (tmp_path / "again").mkdir()
    assert write_plots(small_table, results, tmp_path / "again", "t")[1].read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", ["fig1", "fig3", "fig-specialists", "table5"])
def test_figures_are_drawn_with_and_without_results(name: str, tmp_path: Path, write_done: Callable[..., Any]) -> None:
    assert name in TABLES
    wanted = table(name, "small", 8, [1, 2])
    assert len(write_plots(wanted, {}, tmp_path, f"{name}-empty")) == 2
    for cell in wanted.cells:
        folder = write_done(cell, {"specialists_per_class": list(range(10))})
    results, problems = read_results(folder, wanted.cells)
    assert problems == []
    assert all(path.stat().st_size > 5000 for path in write_plots(wanted, results, tmp_path, name))


def test_a_grid_shows_our_mean_and_the_papers_number(
    small_table: Table, results: dict[str, Any], tmp_path: Path
) -> None:
    grid = dataclasses.replace(small_table, plot="grid")
    text = write_plots(grid, results, tmp_path, "grid")[1].read_text(encoding="utf-8")
    assert ">7.00<" in text  # mean error of 6 and 8 %
    assert ">[6.54±0.98]<" in text
    assert ">[5.07±0.65]<" in text  # not run here, so nothing of ours stands above it


def test_a_legend_names_the_paper_only_beside_its_numbers(
    small_table: Table, results: dict[str, Any], tmp_path: Path
) -> None:
    with_paper = write_plots(small_table, results, tmp_path, "with")[1].read_text(encoding="utf-8")
    entries = tuple(dataclasses.replace(entry, paper="") for entry in small_table.entries)
    without = write_plots(dataclasses.replace(small_table, entries=entries), results, tmp_path, "without")[1]
    assert ">paper<" in with_paper
    assert ">paper<" not in without.read_text(encoding="utf-8")

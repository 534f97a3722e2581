"""The tables: their cells, and the paper's figures as its source prints them."""

import re
from pathlib import Path

import pytest

from dpssl.config import METHODS, load_preset, settings_that_matter
from dpssl.errors import InputError
from dpssl.paper import tables
from dpssl.paper.entries import Entry
from dpssl.paper.numbers import as_number, printed, printed_accuracy
from dpssl.paper.tables import TABLES, table


def entry(name: str, row: str, column: str) -> Entry:
    (found,) = (entry for entry in table(name).entries if (entry.row, entry.column) == (row, column))
    return found


def test_every_method_has_a_row_in_table_1() -> None:
    assert set(tables.METHODS) == set(METHODS)


def test_table_1_has_the_papers_sets_labels_and_folds() -> None:
    cells = table("table1").cells
    labels = {data: sorted({cell.n_labels for cell in cells if cell.data == data}) for data in ("cifar10", "cifar100")}
    assert labels == {"cifar10": [40, 250, 4000], "cifar100": [400, 2500, 10000]}
    assert sorted({cell.n_labels for cell in cells if cell.data == "svhn"}) == [40, 250, 1000]
    assert {cell.seed for cell in cells} == {1, 2, 3, 4, 5}
    # 13 methods and DP-SSL as printed on 9 pairs of set and label count, and the ceiling once a set, for 5 seeds
    assert len(cells) == (14 * 9 + 3) * 5
    widths = {cell.data: cell.config().backbone.width for cell in cells}
    assert widths == {"cifar10": 2, "cifar100": 8, "svhn": 2}


def test_dp_ssl_as_printed_has_what_the_preset_paper_has_of_the_method() -> None:
    """But the schedule and batch statistics, which all rows share, a first phase as short, and a K of its scale."""
    (cell,) = (
        cell for cell in table("table1", seeds=[1]).cells if cell.name.startswith("cifar10-40_dp-ssl_as-printed")
    )
    as_printed, paper = cell.settings_in_use(), settings_that_matter(load_preset("paper"))
    shared = {"final_lr_fraction", "fresh_statistics", "bn_momentum", "compile", "steps", "end_steps", "mcl_max_steps"}
    differing = {name for name in as_printed if as_printed[name] != paper[name]}
    assert differing - {"window"} == shared
    assert {found.paper for found in table("table1").entries if found.row == "DP-SSL, as printed"} == {""}
    assert not any(found.row == "DP-SSL, as printed" for found in table("fig1").entries)


def test_notes_are_of_what_is_shown() -> None:
    whole = table("table1")
    cifar10, svhn = ("chosen with the truth of label seed 1, at 40", "truth of label seeds 1 and 2, at 250")

    def said(**kept: str) -> str:
        cells = [cell for cell in whole.cells if all(getattr(cell, name) == value for name, value in kept.items())]
        part = whole.of(cells)
        return " ".join([part.budget, *part.all_notes])

    assert cifar10 in said()
    assert svhn in said()
    assert said(method="fixmatch") == "Budget: 60,000 steps a cell."
    assert said(method="freematch").endswith(
        "FlexMatch, FreeMatch and the supervised row are not in the paper's table."
    )
    assert cifar10 in said(method="dp-ssl", data="cifar10", variant="default")
    assert svhn not in said(method="dp-ssl", data="cifar10", variant="default")
    assert "chosen with" not in said(method="dp-ssl", variant="as-printed")
    assert '"DP-SSL, as printed" has what the paper prints' in said(variant="as-printed")
    assert all("chosen with" not in note for note in table("table1", "small").all_notes)


def test_table_5_has_36_cells_of_which_two_stand_in_other_tables() -> None:
    grid = table("table5", seeds=[1])
    assert len(grid.entries) == len(grid.cells) == 36
    shared = {cell.name for cell in grid.cells} & {cell.name for cell in table("table4", seeds=[1]).cells}
    assert shared == {"cifar10-40_dp-ssl_60000-steps_seed-1", "cifar10-40_dp-ssl_exp1_60000-steps_seed-1"}
    assert not any(
        cell.config().labeling.mcl for found in grid.entries if found.column == "ρ = 1" for cell in found.cells
    )


def test_exp4_and_exp5_read_the_votes_of_exp3() -> None:
    rows = {found.row[:4]: found for found in table("table4").entries if found.column == "40 labels: accuracy (%)"}
    assert rows["Exp3"].cells == rows["Exp4"].cells == rows["Exp5"].cells
    assert rows["Exp4"].figure.startswith("label_models.paper-without-regularizer.")
    assert not rows["Exp1"].cells[0].config().labeling.mcl
    assert not rows["Exp2"].cells[0].config().labeling.feature_transform


def test_a_part_has_no_column_in_which_the_ceiling_of_another_stands_alone() -> None:
    whole = table("table1", seeds=[1])
    part = whole.of([cell for cell in whole.cells if cell.data == "svhn" and cell.n_labels == 40])
    assert part.columns == ["SVHN, 40 labels"]
    assert "Fully supervised" in part.rows
    assert whole.of(whole.cells).columns == whole.columns
    assert sum(entry.row == "Fully supervised" for entry in whole.entries) == len(whole.columns)


def test_steps_and_seeds_are_as_asked() -> None:
    cells = table("barely", "small", 12, [4, 5, 4]).cells
    assert {cell.steps for cell in cells} == {12}
    assert {cell.seed for cell in cells} == {4, 5}
    assert {cell.n_labels for cell in cells} == {10, 20, 30}


def test_the_oracle_is_marked() -> None:
    oracle = [cell for cell in table("oracle-regularizer").cells if cell.uses_truth]
    assert {(cell.variant, cell.data, cell.n_labels) for cell in oracle} == {("oracle-regularizer", "cifar100", 2500)}
    assert not any(cell.uses_truth for name in TABLES if name != "oracle-regularizer" for cell in table(name).cells)


@pytest.mark.parametrize(
    ("name", "row", "column", "paper"),
    [
        ("table1", "DP-SSL", "CIFAR-10, 40 labels", "6.54±0.98"),
        ("table1", "DP-SSL", "CIFAR-100, 2500 labels", "28.00±0.79"),
        ("table1", "UDA", "SVHN, 40 labels", "52.63±20.51"),
        ("table1", "Mean Teacher", "CIFAR-10, 40 labels", ""),
        ("table1", "FreeMatch", "CIFAR-10, 40 labels", ""),
        ("table1", "Fully supervised", "SVHN, 250 labels", "1.48"),
        ("table2", "Fully supervised", "STL-10, 40 labels", ""),
        ("table2", "Π-Model", "STL-10, 1000 labels", "26.23±0.82"),
        ("table2", "DP-SSL", "STL-10, 40 labels", "9.32±0.91"),
        ("table3", "FlyingSquid: F1", "CIFAR-100, 400 labels", "48.90"),
        ("table3", "DP-SSL: accuracy of the 500 surest a class", "CIFAR-10, 40 labels", "97.36"),
        ("table3", "USADTM: proxy-label accuracy", "CIFAR-10, 40 labels", "89.48"),
        ("table4", "Exp4: without regularizer", "250 labels: accuracy (%)", "94.94"),
        ("table5", "K = 10", "ρ = 0.1", "83.25"),
        ("table5", "K = 60", "ρ = 1", "92.43"),
        ("fig3", "K = 50", "over K", "6.18"),
        ("fig-specialists", "dog", "LFs", "15"),
        ("barely", "DP-SSL", "30 labels", "89.81±1.59"),
        ("oracle-regularizer", "The same with class-wise R and true accuracies (oracle)", "CIFAR-100, 2500 labels",
         "27.92±0.23"),
    ],
)  # fmt: skip
def test_the_papers_figures_are_those_it_prints(name: str, row: str, column: str, paper: str) -> None:
    assert entry(name, row, column).paper == paper


@pytest.mark.parametrize("table_name", ["table1", "table3"])
def test_the_papers_figures_agree_with_its_source(table_name: str, repo_root: Path) -> None:
    """Every row of both tables, read out of the paper's LaTeX."""
    source = repo_root.parent / "shared" / "paper" / "dp-ssl.tex"
    if not source.is_file():
        pytest.skip("no ../shared/paper beside the checkout")
    text = re.sub(r"\\textbf\{([^}]*)\}", r"\1", source.read_text(encoding="utf-8")).replace(r"$\pm$", "±")
    label = {"table1": "tab:sota1", "table3": "tab:label-res"}[table_name]
    body = text.split(rf"\label{{{label}}}")[1].split(r"\end{tabular}")[0]
    rows = [re.findall(r"\d+\.\d+(?:±\d+\.\d+)?|(?<=&) *-(?= *&|\s)", row) for row in body.split(r"\\")]
    found = [["" if cell.strip() == "-" else cell for cell in row] for row in rows if len(row) == 9]
    names = {
        "table1": ("pi-model", "pseudo-label", "mean-teacher", "mixmatch", "uda", "remixmatch", "usadtm", "fixmatch",
                   "fixmatch-cta", "dp-ssl"),
        "table3": ("majority-f1", "flyingsquid-f1", "precision", "recall", "f1", "coverage"),
    }[table_name]  # fmt: skip
    places = [(d, n) for d, labels in tables.make_plan("paper").scale.labels.items() for n in labels]
    assert found == [[printed(table_name, data, name, n_labels) for data, n_labels in places] for name in names]


@pytest.mark.parametrize("scale", ["fashion", "small"])
def test_other_scales_have_no_number_of_the_paper(scale: str) -> None:
    assert not any(found.paper for name in TABLES if name != "table2" for found in table(name, scale).entries)
    assert printed_accuracy("digits", 10, 0) == ""


def test_printed_figures_as_numbers() -> None:
    assert as_number("6.54±0.98") == (6.54, 0.98)
    assert as_number("2.74") == (2.74, 0.0)
    assert as_number("61.32 to 83.7") is None
    assert as_number("") is None


def test_an_unknown_table_or_scale_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(
        InputError, match=r"'table6': no such table or figure; choose one of table1, .*, barely, oracle"
    ):
        table("table6")
    with pytest.raises(InputError, match="--scale 'big': choose one of paper, fashion, small"):
        table("table1", "big")
    with pytest.raises(InputError, match="table2 is STL-10, which has no stand-in"):
        table("table2", "small")
    for seed in (0, 11):
        with pytest.raises(InputError, match=f"--seeds {seed}: STL-10 has folds 1 to 10"):
            table("table2", seeds=[1, seed])

"""Cells: equal names mean equal runs; filters; what a budget becomes."""

import dataclasses
import json

import pytest

from dpssl.baselines.registry import as_given, method_settings
from dpssl.config import settings_that_matter
from dpssl.errors import InputError
from dpssl.paper.cells import Cell, each_once, folder_name, select
from dpssl.paper.plans import SCALES, make_plan
from dpssl.paper.published import ALL, PUBLISHED, published_settings
from dpssl.paper.tables import TABLES, table


def test_a_budget_is_all_steps_of_dp_ssl_together_and_of_others() -> None:
    ours = Cell("cifar10-wrn-28-2", "cifar10", 40, "dp-ssl", 1, 60_000).config()
    assert (ours.labeling.steps, ours.end_model.end_steps) == (45_000, 15_000)
    other = Cell("cifar10-wrn-28-2", "cifar10", 250, "fixmatch", 2, 60_000).config()
    assert (other.labeling.steps, other.baseline.method, other.data.n_labels, other.run.seed) == (
        60_000, "fixmatch", 250, 2,
    )  # fmt: skip


def test_few_steps_shorten_the_first_phase() -> None:
    labeling = Cell("digits", "digits", 40, "dp-ssl", 1, 8).config().labeling
    assert (labeling.mcl_min_steps, labeling.mcl_max_steps, labeling.steps) == (6, 6, 6)


def test_each_seed_of_stl10_has_its_published_fold() -> None:
    assert [Cell("stl10-40", "stl10", 40, "uda", seed, 8).config().data.fold for seed in (1, 3)] == [1, 3]
    assert Cell("digits", "digits", 40, "uda", 3, 8).config().data.fold == 0


def test_a_cell_survives_json() -> None:
    cell = Cell("digits", "digits", 40, "dp-ssl", 1, 8, "K10-rho0.1", (("n_lfs", 10), ("specialist_ratio", 0.1)))
    again = Cell.from_json(json.loads(json.dumps(cell.to_json())))
    assert again == cell
    assert (again.config().labeling.n_lfs, again.config().labeling.specialist_ratio) == (10, 0.1)


@pytest.mark.parametrize("scale", ["paper", "fashion", "small"])
def test_cells_of_all_tables_have_one_name_exactly_where_they_have_the_same_settings(scale: str) -> None:
    """The oracle apart: its settings are the paper's label model, and it is told from it by what it may see."""
    by_name: dict[str, set[str]] = {}
    for name in TABLES:
        if name == "table2" and scale != "paper":
            continue
        for cell in table(name, scale, seeds=[1, 2]).cells:
            settings = settings_that_matter(cell.config()) | {"uses_truth": cell.uses_truth}
            by_name.setdefault(cell.name, set()).add(json.dumps(settings, sort_keys=True))
    assert all(len(settings) == 1 for settings in by_name.values())
    assert len({text for settings in by_name.values() for text in settings}) == len(by_name)


def test_a_changed_setting_is_another_run_folder() -> None:
    cell = Cell("digits", "digits", 40, "dp-ssl", 1, 8)
    other = dataclasses.replace(cell, settings=(("learning_rate", 0.01),))
    assert cell.name == other.name
    assert folder_name(cell) != folder_name(other)


def test_a_cell_shared_by_tables_trains_the_end_model_where_one_of_them_asks_for_it() -> None:
    without = Cell("digits", "digits", 40, "dp-ssl", 1, 8, end_model=False)
    merged = each_once([without, dataclasses.replace(without, end_model=True), without])
    assert [cell.end_model for cell in merged] == [True]


def test_filters_take_lists_and_combine() -> None:
    cells = table("table1", "small").cells
    found = select(cells, ["method=fixmatch,uda", "labels=40", "seed=1,3"])
    assert [(cell.method, cell.n_labels, cell.seed) for cell in found] == [
        ("uda", 40, 1), ("uda", 40, 3), ("fixmatch", 40, 1), ("fixmatch", 40, 3),
    ]  # fmt: skip
    assert select(cells, []) == cells
    assert {cell.variant for cell in select(table("table4", "small").cells, ["variant=exp1"])} == {"exp1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method=fixmach", "--cells method=fixmach: no such cell; method may be pi-model, pseudo-label"),
        ("labels=41", "labels may be 40, 250"),
        ("seed=9", "no such cell; seed may be 1, 2, 3"),
        ("metod=uda", "write name=value, with a name of method, data, labels, seed, variant"),
        ("uda", "write name=value"),
    ],
)
def test_an_unknown_cell_is_refused_with_the_valid_ones(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        select(table("table1", "small").cells, [text])


def test_a_cell_that_an_earlier_filter_left_out_is_refused_as_such() -> None:
    with pytest.raises(
        InputError, match="method=uda: no such cell among those of the filters before it; method may be"
    ):
        select(table("table1", "small").cells, ["method=fixmatch", "method=uda"])


def test_freematch_has_its_published_limits_on_svhn_and_a_run_without_them_is_another() -> None:
    (cell,) = make_plan("paper", 8, [1]).cells("svhn", 250, "freematch")
    assert cell.config().baseline.method_settings == ("least_threshold=0.9", "most_threshold=0.95")
    (other,) = make_plan("paper", 8, [1]).cells("svhn", 250, "fixmatch")
    assert other.config().baseline.method_settings == ()
    assert folder_name(cell) != folder_name(dataclasses.replace(cell, method_settings=()))


def test_published_settings_are_written_as_a_run_notes_them() -> None:
    for (method, _), of_set in PUBLISHED.items():
        for given in of_set.values():
            assert set(given) <= set(as_given(method_settings(method, given)))
            assert not set(given) & set(as_given(method_settings(method, ()))), "that is the default"


def test_published_settings_are_of_sets_and_label_counts_that_the_tables_have() -> None:
    counts = {**SCALES["paper"].labels, "stl10": (40, 250, 1000)}
    for (_, data), of_set in PUBLISHED.items():
        assert set(of_set) - {ALL} <= set(counts[data])


@pytest.mark.parametrize(
    ("method", "data", "n_labels", "settings"),
    [
        ("mixmatch", "svhn", 40, ("unlabeled_weight=250.0",)),  # MixMatch, Sec. 4.2: 75, 250 and 50 by set
        ("mixmatch", "cifar10", 40, ()),
        ("remixmatch", "svhn", 40, ("n_strong=1", "rotation_weight=3.0")),  # the authors' runs/ssl/svhn.sh
        ("remixmatch", "svhn", 250, ()),
        ("usadtm", "cifar10", 4000, ("n_joining=800",)),  # the authors' label_guessor.py
        ("usadtm", "digits", 250, ()),
    ],
)
def test_a_set_or_number_of_labels_has_what_was_published_for_it(
    method: str, data: str, n_labels: int, settings: tuple[str, ...]
) -> None:
    assert published_settings(method, data, n_labels) == settings


def test_settings_that_came_later_leave_the_names_of_older_run_folders() -> None:
    cell = Cell("cifar10-wrn-28-2", "cifar10", 40, "dp-ssl", 1, 60000)
    assert folder_name(cell) == f"{cell.name}-c7e612ae"  # as before the settings of LATER were there
    limited = dataclasses.replace(cell, settings=(("least_threshold", 0.5),))
    assert folder_name(limited) != folder_name(cell)

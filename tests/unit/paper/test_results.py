"""Results: what counts, what does not and is named, and the numbers of an entry."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpssl.errors import InputError, RunFolderError
from dpssl.paper.cells import Cell
from dpssl.paper.entries import Entry, Table
from dpssl.paper.results import folder_of_results, made_folder, measured, other_runs, read_results, write_result
from dpssl.run_folder import RunFolder


def test_a_result_is_read_back(cells: list[Cell], write_done: Callable[..., Any]) -> None:
    found, problems = read_results(write_done(cells[0]), cells)
    assert problems == []
    assert list(found) == [cells[0].name]
    assert (found[cells[0].name].minutes, found[cells[0].name].commit) == (0.5, "abc")
    assert found[cells[0].name].has(cells[0])


def test_a_failure_is_read_back_and_gives_no_number(small_table: Table, write_done: Callable[..., Any]) -> None:
    folder = write_done(small_table.cells[1])
    write_result(folder, small_table.cells[0], small_table.cells[0].settings_in_use(), {}, error="no memory")
    found, problems = read_results(folder, small_table.cells)
    assert problems == []
    assert found[small_table.cells[0].name].error == "no memory"
    assert not found[small_table.cells[0].name].has(small_table.cells[0])
    assert len(measured(small_table.entries[0], found).values) == 1


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"format": 2}, "has format 2, this version of dpssl reads 1"),
        ({"figures": None}, "is damaged, its 'figures' is missing or of another type"),
        ({"cell": {"data": 3}}, "is damaged, its 'cell' is none"),
        ({"status": "weird"}, "is damaged, its status is 'weird' with the error None"),
        ({"error": "no memory"}, "is damaged, its status is 'done' with the error 'no memory'"),
        ({"figures": {"test_accuracy": 7}}, "is damaged, its test_accuracy is 7, no share between 0 and 1"),
        ({"figures": {"test_accuracy": "high"}}, "is damaged, its test_accuracy is 'high', no share between 0 and 1"),
        ({"figures": {"per_class": [{"f1": -0.1}]}}, "is damaged, its f1 is -0.1, no share between 0 and 1"),
        ({"uses_truth": True}, "is damaged, it says that it uses truth"),
    ],
)
def test_a_file_of_another_version_or_damaged_is_named_and_not_counted(
    cells: list[Cell], write_done: Callable[..., Any], replaced: dict[str, Any], message: str
) -> None:
    folder = write_done(cells[0], None, replaced)
    found, problems = read_results(folder, cells)
    assert found == {}
    assert problems == [f"{folder.path(cells[0].name + '.json')}: {message}; not counted"]


@pytest.mark.parametrize(
    ("noted", "message"),
    [
        ({"a_new_switch": True}, "was made with a_new_switch = True, which this version of dpssl does not have"),
        ({"abstain_claim": 0.5}, "was made with abstain_claim = 0.5, which this version of dpssl does not have"),
        ({"method_settings": 5}, "is damaged, its method_settings are 5"),
        ({"method_settings": [5]}, "is damaged, its method_settings are [5]"),
        ({"method_settings": ["ramp=0.015625"]}, "was made with ramp = 0.015625, which fixmatch does not have now"),
    ],
)
def test_a_run_with_a_setting_that_is_not_there_now_is_named_and_not_counted(
    cells: list[Cell], write_done: Callable[..., Any], noted: dict[str, Any], message: str
) -> None:
    """One that was renamed may have had another value than the new one's default, as MixMatch's ramp had."""
    folder = write_done(cells[0], None, {"config": cells[0].settings_in_use() | noted})
    found, problems = read_results(folder, cells)
    assert found == {}
    assert problems == [f"{folder.path(cells[0].name + '.json')}: {message}; not counted"]


def test_a_setting_that_is_gone_and_was_off_changes_nothing(cells: list[Cell], write_done: Callable[..., Any]) -> None:
    folder = write_done(cells[0], None, {"config": cells[0].settings_in_use() | {"abstain_claim": 0.0}})
    found, problems = read_results(folder, cells)
    assert (list(found), problems) == ([cells[0].name], [])


def test_a_figure_that_is_no_number_is_named(cells: list[Cell], write_done: Callable[..., Any]) -> None:
    folder = write_done(cells[0], {"n_empty_sets": 17})
    name = f"{cells[0].name}.json"
    folder.write_text(name, folder.read_text(name).replace("17", "NaN"))  # as other programs write it
    found, problems = read_results(folder, cells)
    assert found == {}
    assert "is damaged, its n_empty_sets is nan" in problems[0]


@pytest.mark.parametrize(("text", "message"), [("{", "no JSON document"), ("[1]", "does not say its format")])
def test_a_file_cut_short_is_named(cells: list[Cell], write_done: Callable[..., Any], text: str, message: str) -> None:
    folder = write_done(cells[0])
    folder.write_text(f"{cells[0].name}.json", text)
    found, problems = read_results(folder, cells)
    assert found == {}
    assert f"{cells[0].name}.json" in problems[0]
    assert message in problems[0]


def test_a_file_of_another_cell_is_named(cells: list[Cell], write_done: Callable[..., Any]) -> None:
    folder = write_done(cells[1])
    folder.write_text(f"{cells[0].name}.json", folder.read_text(f"{cells[1].name}.json"))
    found, problems = read_results(folder, cells)
    assert list(found) == [cells[1].name]
    assert f"holds the cell {cells[1].name}" in problems[0]


def test_a_result_with_other_settings_is_named_and_a_newer_setting_does_no_harm(
    cells: list[Cell], write_done: Callable[..., Any]
) -> None:
    folder = write_done(cells[0])
    config = folder.read_json(f"{cells[0].name}.json")["config"]
    write_done(cells[0], None, {"config": config | {"learning_rate": 0.5}})
    found, problems = read_results(folder, cells)
    assert found == {}
    assert "was made with learning_rate = 0.5, which is 0.06 now" in problems[0]
    older = {name: value for name, value in config.items() if name != "joint_forward"}
    write_done(cells[0], None, {"config": older})
    assert list(read_results(folder, cells)[0]) == [cells[0].name]


def test_a_setting_newer_than_the_result_had_its_default(write_done: Callable[..., Any]) -> None:
    ours, other = (Cell("digits", "digits", 40, method, seed=1, steps=20) for method in ("dp-ssl", "fixmatch"))
    for cell in (ours, other):
        folder = write_done(cell)
        config = folder.read_json(f"{cell.name}.json")["config"]
        assert config.pop("curriculum_threshold") is True  # of the preset, not the default
        write_done(cell, None, {"config": config | {"warm_crop": 0.9}})  # of a warm start that neither has
    found, problems = read_results(folder, [ours, other])
    assert list(found) == [other.name], "another system has no such threshold"
    assert len(problems) == 1
    assert "was made with curriculum_threshold = False, which is True now" in problems[0]


def test_a_result_with_other_settings_of_its_method_is_named(write_done: Callable[..., Any]) -> None:
    free = Cell("svhn-40", "svhn", 250, "freematch", seed=1, steps=20)
    limited = dataclasses.replace(free, method_settings=("least_threshold=0.9",))
    for made, asked, before, now in ((free, limited, 0.0, 0.9), (limited, free, 0.9, 0.0)):
        folder = write_done(made)
        assert list(read_results(folder, [made])[0]) == [made.name]
        found, problems = read_results(folder, [asked])
        assert found == {}
        assert f"was made with least_threshold = {before}, which is {now} now" in problems[0]


def test_a_result_made_with_another_default_of_its_method_is_named(
    cells: list[Cell], write_done: Callable[..., Any]
) -> None:
    folder = write_done(cells[0])
    config = folder.read_json(f"{cells[0].name}.json")["config"]
    write_done(cells[0], None, {"config": config | {"method_settings": ["threshold=0.8", "unlabeled_weight=1.0"]}})
    found, problems = read_results(folder, cells)
    assert found == {}
    assert "was made with threshold = 0.8, which is 0.95 now" in problems[0]
    write_done(cells[0], None, {"config": config | {"method_settings": ["unlabeled_weight=1.0"]}})
    assert list(read_results(folder, cells)[0]) == [cells[0].name], "a setting newer than the run had its default"


def test_a_result_without_the_test_accuracy_asked_for_is_not_done(
    cells: list[Cell], write_done: Callable[..., Any]
) -> None:
    folder = write_done(cells[0], {"test_accuracy": None})
    result = read_results(folder, cells)[0][cells[0].name]
    assert not result.has(cells[0])
    assert result.has(dataclasses.replace(cells[0], end_model=False))


def test_results_of_other_budgets_and_seeds_are_found_by_their_names(
    cells: list[Cell], write_done: Callable[..., Any]
) -> None:
    longer = [dataclasses.replace(cell, steps=steps) for steps in (1200, 90) for cell in cells]
    elsewhere = dataclasses.replace(cells[0], n_labels=250, steps=77)
    for cell in (*cells, *longer[:4], elsewhere):
        folder = write_done(cell)
    folder.path("notes_90-steps_.txt").write_text("no result")
    assert other_runs(folder, cells) == {"--steps 90": 1, "--steps 1200": 3}
    assert other_runs(folder, cells[:1]) == {"--steps 90": 1, "--steps 1200": 1, "--seeds 2 3": 2}
    assert other_runs(RunFolder(folder.path("nothing")), cells) == {}


def test_numbers_of_an_entry(cells: list[Cell], write_done: Callable[..., Any]) -> None:
    for cell, accuracy in zip(cells, (0.9, 0.8, 0.7), strict=True):
        folder = write_done(cell, {"test_accuracy": accuracy, "specialists_per_class": [4, 5], "deep": {"f": 0.5}})
    found, _ = read_results(folder, cells)

    def numbers(figure: str, shown_as: str) -> tuple[float, ...]:
        return measured(Entry("r", "c", tuple(cells), figure, shown_as), found).values

    error = measured(Entry("r", "c", tuple(cells), "test_accuracy"), found)
    assert error.mean == pytest.approx(20)
    assert error.std == pytest.approx(10)  # by hand: 10, 20, 30
    assert numbers("specialists_per_class.1", "count") == (5, 5, 5)
    assert numbers("deep.f", "percent") == (50, 50, 50)
    assert numbers("specialists_per_class.2", "count") == numbers("absent", "count") == numbers("deep", "count") == ()
    assert measured(Entry("r", "c", tuple(cells[:1]), "test_accuracy"), found).std is None


def test_a_result_that_may_not_be_read_is_an_error_and_none_to_run_again(
    cells: list[Cell], write_done: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_done(cells[0])

    def refused(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(RunFolderError, match=f"{cells[0].name}.json: cannot be read"):
        read_results(folder, cells)


def test_a_folder_in_the_place_of_a_result_is_named_and_not_counted(cells: list[Cell], tmp_path: Path) -> None:
    (tmp_path / f"{cells[0].name}.json").mkdir()
    found, problems = read_results(RunFolder(tmp_path), cells)
    assert (found, len(problems)) == ({}, 1)
    assert "is damaged, no JSON document; not counted" in problems[0]


def test_a_folder_of_results_is_there_unless_it_may_be_missing(tmp_path: Path) -> None:
    assert folder_of_results(str(tmp_path), may_be_missing=False).folder == tmp_path
    assert folder_of_results(str(tmp_path / "none"), may_be_missing=True).folder == tmp_path / "none"
    with pytest.raises(InputError, match=r"--results .*none: no such folder"):
        folder_of_results(str(tmp_path / "none"), may_be_missing=False)
    (tmp_path / "file").write_text("")
    for path in (str(tmp_path / "file"), ""):
        with pytest.raises(InputError, match=r"--results .*: no such folder"):
            folder_of_results(path, may_be_missing=True)
    with pytest.raises(InputError, match="--runs: name a folder"):
        made_folder("", "--runs")


def test_a_folder_that_lies_where_nobody_may_look_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")  # of Path.is_dir, where a folder above may not be entered

    monkeypatch.setattr(Path, "is_dir", refused)
    with pytest.raises(RunFolderError, match=r"--results .*: cannot be read; check its permissions"):
        folder_of_results(str(tmp_path / "inside"), may_be_missing=True)


def test_folders_that_may_not_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RunFolderError, match=r"--out .*: cannot be read and written; check its permissions"):
        made_folder(str(tmp_path), "--out")
    with pytest.raises(RunFolderError, match=r"--results .*: cannot be read; check its permissions"):
        folder_of_results(str(tmp_path), may_be_missing=False)

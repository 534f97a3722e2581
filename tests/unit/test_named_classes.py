"""Cells of votes and labels as class numbers: what a cell may hold, and what is refused by its place."""

import numpy as np
import pandas as pd
import pytest

from dpssl import named_classes
from dpssl.errors import InputError
from dpssl.named_classes import ClassReader, check_class_names, distinct, new_numbers, whole_numbers


def where(row: int = 0, *_: int) -> str:
    return f"row {row}"


@pytest.mark.parametrize("empty", ["", "  ", None, np.nan, pd.NA, pd.NaT, "nan", "-1", -1])
def test_what_is_no_label(empty):
    cells = np.array(["owl", empty, "cat"], dtype=object)
    reader = ClassReader()
    assert reader.read(cells, where).tolist() == [0, -1, 1]
    assert reader.in_order()[0] == ["cat", "owl"]


def test_names_in_the_order_of_the_alphabet():
    reader = ClassReader()
    numbers = reader.read(np.array([["owl", "cat "], ["", "owl"]]), where)
    names, order = reader.in_order()
    assert names == ["cat", "owl"]
    assert order[numbers].tolist() == [[1, 0], [-1, 1]]


@pytest.mark.parametrize("kind", [str, object, "bytes"])
def test_text_of_any_kind(kind):
    cells = np.array([b"cat", b"", b"dog"]) if kind == "bytes" else np.array(["cat", "", "dog"], dtype=kind)
    reader = ClassReader(["dog", "cat"])
    assert reader.read(cells, where).tolist() == [1, -1, 0]


def test_numbers_as_text_are_numbers_and_a_name_may_be_its_own_number():
    assert ClassReader().read(np.array(["2", "1.0", ""]), where).tolist() == [2, 1, -1]
    assert ClassReader(["0", "1", "2"]).read(np.array(["2", "0"]), where).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["cat", True], "row 1: True is no class; write class numbers or names"),
        (["cat", 3], "row 0: cat is not a class number, but 3 in row 1 is"),
        ([0.5, None], "row 0: 0.5 is not a class number"),
        (["40000"], "row 0: 40000 is not a class number"),
        ([["cat"], "dog"], "a cell is no number and no text"),
    ],
)
def test_cells_that_are_refused(cells, message):
    given = np.empty(len(cells), dtype=object)
    given[:] = cells
    with pytest.raises(InputError, match=message):
        ClassReader().read(given, where)


def test_numbers_far_into_an_array_are_met(monkeypatch):
    """It is looked through in parts: one may be a memory map that is larger than memory."""
    monkeypatch.setattr(named_classes, "CELLS_AT_A_TIME", 2)
    reader = ClassReader()
    reader.read(np.array([-1.0, np.nan, -1.0, -1.0, 2.0]), where)
    with pytest.raises(InputError, match="but 2 in row 4 is"):
        reader.read(np.array(["cat"]), where)


def test_whole_numbers():
    assert whole_numbers(np.array([1.0, np.nan, -1.0]), where).tolist() == [1, -1, -1]
    for cells in ([0.0, 1.5], [0.0, np.inf], [0, 10**6], [False, True], [1j]):
        with pytest.raises(InputError, match="is not a class number; write 0, 1, 2"):
            whole_numbers(np.array(cells), where)


def test_distinct_cells_in_the_order_of_their_appearance():
    for dtype in (object, str):
        values, first, which = distinct(np.array(["b", "a", "b", "c"], dtype=dtype))
        assert values == ["b", "a", "c"]
        assert first.tolist() == [0, 1, 3]
        assert which.tolist() == [0, 1, 0, 2]


def test_new_numbers_keep_no_vote():
    assert new_numbers(["b", "a"], ["a", "b", "c"]).tolist() == [1, 0, -1]


def test_names_that_are_given():
    assert check_class_names([" cat", 1]) == ["cat", "1"]
    assert check_class_names(np.array(["a", "b"])) == ["a", "b"]
    for names in (["a"], ["a", None], ["a", "a "]):
        with pytest.raises(InputError, match="give at least two, none of them empty or twice"):
            check_class_names(names)


def test_more_names_than_a_number_can_hold(monkeypatch):
    monkeypatch.setattr(named_classes, "MOST_CLASSES", 2)
    with pytest.raises(InputError, match="row 2: 'c' is one class too many; 2 may be"):
        ClassReader().read(np.array(["a", "b", "c"]), where)

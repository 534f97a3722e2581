"""Classes by number or by name, wherever people give votes or labels.

A cell is a class number, a class name, or empty: "", None, NaN and -1 say that there is no vote or label. Names become
numbers in the order in which they are given, or in alphabetical order where they are found in the cells. Truth values
are refused: False may be class 0, or a rule that did not fire.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import UNLABELED
from dpssl.errors import InputError

NO_NAME = ""  # among names what -1 is among numbers
MOST_CLASSES = 32767  # the highest number that int16 holds: a mistyped number would otherwise make that many classes
MISSING = ("None", "nan", "NaT", "<NA>")  # None, NaN and pandas' missing values, as text
SHOWN = 20  # names in a message
CELLS_AT_A_TIME = 1 << 20
Place = Callable[..., str]  # the index of a cell, as words


class ClassReader:
    """Cells in, class numbers out, in one part or many: all of them are numbers, or all of them are names.

    names: the classes there are, in the order of their numbers; without them, `found` collects those in the cells,
        numbered as they appear, and `in_order` says which numbers they have in alphabetical order.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self.found: dict[str, int] = {name: number for number, name in enumerate(names or ())}
        self._complete = names is not None
        self._number_at, self._name_at = "", ""  # the first of each, for the message where both are met

    @property
    def met_names(self) -> bool:
        return bool(self._name_at)

    def read(self, cells: NDArray[Any], place: Place) -> NDArray[Any]:
        """Numbers of the shape of `cells`, -1 where they are empty; numbers come out as they went in."""
        if cells.dtype.kind not in "OSTU":
            self._note_first_number(cells, place)
            return cells
        values, first, which = distinct(cells)
        numbers = [self._number(value, cells, int(index), place) for value, index in zip(values, first, strict=True)]
        return np.array(numbers, dtype=np.int16)[which].reshape(cells.shape)

    def in_order(self) -> tuple[list[str], NDArray[np.int16]]:
        """The names in alphabetical order, and the new number of each old one; the last entry keeps -1 at -1."""
        names = sorted(self.found)
        return names, new_numbers(self.found, names)

    def _number(self, value: Any, cells: NDArray[Any], index: int, place: Place) -> int:
        text = as_text(value)
        if isinstance(value, bool | np.bool_):
            raise InputError(f"{_where(cells, index, place)}: {text} is no class; write class numbers or names")
        if text in self.found:
            self._note_name(cells, index, place)
            return self.found[text]
        number = _as_number(text)
        if text == NO_NAME or number == UNLABELED or text.lower() == "nan":
            return UNLABELED
        if not math.isnan(number):
            if not number.is_integer() or abs(number) > MOST_CLASSES:
                raise InputError(_no_class_number(cells, index, place))
            self._note_number(cells, index, place)
            return int(number)
        self._note_name(cells, index, place)
        if self._complete:
            raise InputError(f"{_where(cells, index, place)}: {text!r} is no class; {classes_in_words(self.found)}")
        if len(self.found) == MOST_CLASSES:
            raise InputError(f"{_where(cells, index, place)}: {text!r} is one class too many; {MOST_CLASSES} may be")
        return self.found.setdefault(text, len(self.found))

    def _note_first_number(self, cells: NDArray[Any], place: Place) -> None:
        """Some cells at a time, and mostly the first: a memory map may be larger than memory."""
        for start in range(0, 0 if self._number_at else cells.size, CELLS_AT_A_TIME):
            part = cells.flat[start : start + CELLS_AT_A_TIME]
            if (met := (part != UNLABELED) & (part == part)).any():
                return self._note_number(cells, start + int(met.argmax()), place)

    def _note_number(self, cells: NDArray[Any], index: int, place: Place) -> None:
        self._number_at = self._number_at or f"{_cell(cells, index)} in {_where(cells, index, place)}"
        self._check_not_mixed()

    def _note_name(self, cells: NDArray[Any], index: int, place: Place) -> None:
        self._name_at = self._name_at or f"{_where(cells, index, place)}: {_cell(cells, index)}"
        self._check_not_mixed()

    def _check_not_mixed(self) -> None:
        if self._number_at and self._name_at:
            raise InputError(
                f"{self._name_at} is not a class number, but {self._number_at} is; write numbers 0, 1, 2, … alone or "
                "names alone, and leave a cell empty where there is none"
            )


def classes_in_words(names: Iterable[str]) -> str:
    """The classes there are, for a message."""
    shown = list(islice(names, SHOWN + 1))
    return f"the classes are {', '.join(shown[:SHOWN]) or 'numbers'}{', …' if len(shown) > SHOWN else ''}"


def check_class_names(names: Iterable[Any]) -> list[str]:
    """Names as text, distinct and not empty. One that is a number must be its own, or the two would be confused."""
    if isinstance(names, str):
        raise InputError(f"class_names is {names!r}; give a list of names")
    found = distinct_names(names)
    for number, name in enumerate(found):
        if not math.isnan(_as_number(name)) and name != str(number):
            raise InputError(f"class_names: {name!r} would be class {number}; a name that is a number must be its own")
    return found


def distinct_names(names: Iterable[Any], source: str = "class_names") -> list[str]:
    """Names as text; at least two, none of them empty or twice."""
    found = [as_text(name) for name in names]
    if len(found) < 2 or NO_NAME in found or len(set(found)) < len(found):
        raise InputError(f"{source} are {found[:SHOWN]}; give at least two, none of them empty or twice")
    return found


def new_numbers(old: Iterable[str], names: Sequence[str]) -> NDArray[np.int16]:
    """The number that each of the old names has among `names`, and -1 at the end for no vote."""
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([*(numbers[name] for name in old), UNLABELED], dtype=np.int16)


def whole_numbers(cells: NDArray[Any], place: Place) -> NDArray[np.int64]:
    """Class numbers as integers, -1 where there is none (NaN); any other cell is refused by its place."""
    if cells.dtype.kind == "f":  # as pandas has integers with gaps
        cells = np.where(np.isnan(cells), UNLABELED, cells)
    is_number = np.full(cells.shape, cells.dtype.kind in "iuf")
    if is_number.any():
        is_number = (cells == np.floor(cells)) & (np.abs(cells) <= MOST_CLASSES)
    if not is_number.all():
        raise InputError(_no_class_number(cells, int(is_number.argmin()), place))
    return cells.astype(np.int64)


def distinct(cells: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64], NDArray[np.int64]]:
    """The different cells in the order of their appearance, where each is first met, and which of them each cell is."""
    flat = cells.ravel()
    if cells.dtype.kind in "OT":  # which may not compare with each other
        rank: dict[Any, int] = {}
        try:
            which = np.array([rank.setdefault(value, len(rank)) for value in flat.tolist()], dtype=np.int64)
        except TypeError as problem:
            raise InputError(f"a cell is no number and no text ({problem}); write one class in each") from None
        first = np.empty(len(rank), dtype=np.int64)
        first[which[::-1]] = np.arange(len(which))[::-1]
        return list(rank), first, which
    values, first, which = np.unique(flat, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return values[order].tolist(), first[order], np.argsort(order)[which]


def as_text(value: Any) -> str:
    """Without blanks around it; empty for None and NaN."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return NO_NAME if text in MISSING and not isinstance(value, str) else text.strip()


def _as_number(text: str) -> float:
    """NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _no_class_number(cells: NDArray[Any], index: int, place: Place) -> str:
    return f"{_where(cells, index, place)}: {_cell(cells, index)} is not a class number; write 0, 1, 2, …"


def _where(cells: NDArray[Any], index: int, place: Place) -> str:
    return place(*map(int, np.unravel_index(index, cells.shape)))


def _cell(cells: NDArray[Any], index: int) -> str:
    value = cells.flat[index]
    return f"{value:g}" if isinstance(value, np.floating) else as_text(value)

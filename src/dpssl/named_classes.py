"""Classes by number or by name, wherever people give votes or labels.

A cell is a class number, a class name, or empty: "", None, NaN and -1 say that there is no vote or label. Names become
numbers in the order in which they are given, or in alphabetical order where they are found in the cells.
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
SHOWN = 20  # names in a message
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
        if cells.dtype.kind not in "OUS":
            if not self._number_at and cells.size and (met := cells.ravel() != UNLABELED).any():
                self._note_number(cells, int(met.argmax()), place)
            return cells
        text = _as_text(cells)
        if (numbers := _all_numbers(text)) is not None and not self._knows(text):
            return self.read(numbers, place)
        distinct, first, inverse = np.unique(text.ravel(), return_index=True, return_inverse=True)
        numbered = [
            self._number(str(name), cells, int(index), place) for name, index in zip(distinct, first, strict=True)
        ]
        return np.array(numbered)[inverse].reshape(cells.shape)

    def in_order(self) -> tuple[list[str], NDArray[np.int64]]:
        """The names in alphabetical order, and the new number of each old one; the last entry keeps -1 at -1."""
        names = sorted(self.found)
        rank = {name: number for number, name in enumerate(names)}
        return names, np.array([*(rank[name] for name in self.found), UNLABELED])

    def _knows(self, text: NDArray[np.str_]) -> bool:
        """Is a cell the name of a class? Names may look like numbers."""
        return bool(self.found) and bool(np.isin(text, list(self.found)).any())

    def _number(self, text: str, cells: NDArray[Any], index: int, place: Place) -> int:
        number = math.nan if text == NO_NAME else _as_number(text)
        if text not in self.found and (number == UNLABELED or text == NO_NAME or text.lower() == "nan"):
            return UNLABELED
        if text not in self.found and not math.isnan(number):
            if number != math.floor(number) or abs(number) > MOST_CLASSES:
                raise InputError(f"{_where(cells, index, place)}: {text} is not a class number; write 0, 1, 2, …")
            self._note_number(cells, index, place)
            return int(number)
        self._note_name(cells, index, place)
        if text in self.found:
            return self.found[text]
        if self._complete:
            raise InputError(f"{_where(cells, index, place)}: {text!r} is no class; {classes_in_words(self.found)}")
        return self.found.setdefault(text, len(self.found))

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


def check_class_names(names: Sequence[Any]) -> list[str]:
    """Names as text, distinct and not empty. One that is a number must be its own, or the two would be confused."""
    if isinstance(names, str):
        raise InputError(f"class_names is {names!r}; give a list of names")
    found = [str(name).strip() for name in names]
    if len(found) < 2 or NO_NAME in found or len(set(found)) < len(found):
        raise InputError(f"class_names are {found[:SHOWN]}; give at least two, none of them empty or twice")
    for number, name in enumerate(found):
        if _as_number(name) == _as_number(name) and name != str(number):
            raise InputError(f"class_names: {name!r} would be class {number}; a name that is a number must be its own")
    return found


def _as_text(cells: NDArray[Any]) -> NDArray[np.str_]:
    """Text without blanks around it, empty for None and NaN."""
    if cells.dtype.kind in "US":
        return np.char.strip(cells.astype(np.str_))
    text = [NO_NAME if value is None or value != value else str(value).strip() for value in cells.ravel().tolist()]
    return np.array(text, dtype=np.str_).reshape(cells.shape)


def _all_numbers(text: NDArray[np.str_]) -> NDArray[np.float64] | None:
    """All cells as numbers, at once; None where one is not, or is no whole number."""
    try:
        numbers = np.where(text == NO_NAME, str(UNLABELED), text).astype(np.float64)
    except ValueError:
        return None
    numbers = np.where(np.isnan(numbers), float(UNLABELED), numbers)
    whole = (numbers == np.floor(numbers)) & (np.abs(numbers) <= MOST_CLASSES)
    return numbers if whole.all() else None


def _as_number(text: str) -> float:
    """NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _where(cells: NDArray[Any], index: int, place: Place) -> str:
    return place(*map(int, np.unravel_index(index, cells.shape)))


def _cell(cells: NDArray[Any], index: int) -> str:
    value = cells.ravel()[index]
    return f"{value:g}" if isinstance(value, np.floating) else str(value).strip()

"""Step 2's votes and labels as a user has them: in arrays, tables or files, by class number or by class name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import UNLABELED
from dpssl.errors import InputError
from dpssl.label_model.vote_files import read_votes
from dpssl.label_model.vote_table import NO_VOTES, VoteTable
from dpssl.named_classes import ClassReader, classes_in_words


def as_vote_table(votes: Any) -> VoteTable:
    """Votes by class number, with what comes along: of an array, nested lists, a DataFrame, a sparse matrix or a file.

    Names become numbers in alphabetical order; `class_names` has them.
    """
    if isinstance(votes, VoteTable):
        return votes
    if isinstance(votes, str | Path):
        return read_votes(votes)
    if hasattr(votes, "tocsr"):
        return VoteTable(votes)
    if hasattr(votes, "iloc") and hasattr(votes, "columns"):
        return _of_frame(votes)
    return VoteTable(np.asarray(votes)).numbered(_vote_place)


def _of_frame(frame: Any) -> VoteTable:
    """A pandas DataFrame, read as a file with these columns is: a missing cell abstains."""
    columns = [name for name in frame.columns if str(name).lower() not in NO_VOTES]
    lf_names = [str(name) for name in columns]
    try:
        numbers = frame[columns].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        cells = frame[columns].astype(object)
        return VoteTable(cells.where(cells.notna(), None).to_numpy(), lf_names=lf_names).numbered(
            lambda row, lf: f"votes, row {row}, column {lf_names[lf]!r}"
        )
    return VoteTable(np.where(np.isnan(numbers), float(UNLABELED), numbers), lf_names=lf_names)


def match_classes(
    table: VoteTable, y: Any, class_names: list[str] | None
) -> tuple[VoteTable, NDArray[Any] | None, list[str] | None]:
    """Votes, labels and the class names they have in common; None where classes are numbers.

    class_names: the classes there are; without them, the names met in votes and labels.
    """
    reader = ClassReader(class_names)
    labels = None if y is None else reader.read(np.asarray(y), lambda row: f"y, row {row}")
    names = _common_names(table, reader) if class_names is None else class_names
    if table.class_names not in (None, names) and names is not None:
        table = table.renumbered(_new_numbers(table.class_names, names, "votes"), names)
    if class_names is None and labels is not None and reader.met_names and names is not None:
        labels = _new_numbers(list(reader.found), names, "y")[labels]
    return table, labels, names


def read_labels(y: Any, class_names: Sequence[str]) -> NDArray[Any]:
    """Labels by number, of the classes that there are; none of them has a name where `class_names` is empty."""
    return ClassReader(class_names).read(np.asarray(y), lambda row: f"y, row {row}")


def _common_names(table: VoteTable, reader: ClassReader) -> list[str] | None:
    """All names of votes and labels in alphabetical order, a file's own list of them as it is."""
    if not reader.met_names:
        return table.class_names
    if table.class_names is None:
        raise InputError("y holds class names, but the votes are class numbers; give class_names, in their order")
    others = sorted(set(reader.found) - set(table.class_names))
    return sorted([*table.class_names, *others]) if others else table.class_names


def _new_numbers(old: Sequence[str], names: Sequence[str], what: str) -> NDArray[np.int64]:
    """The number that each of the old names has among `names`, and -1 at the end for no vote."""
    numbers = {name: number for number, name in enumerate(names)}
    if unknown := [name for name in old if name not in numbers]:
        raise InputError(f"{what}: {unknown[0]!r} is no class; {classes_in_words(names)}")
    return np.array([*(numbers[name] for name in old), UNLABELED])


def count_classes(table: VoteTable, y: NDArray[Any] | None, class_balance: Any = None) -> int:
    """How many classes there are where nobody says: of names, shares or specialties, or up to the highest number."""
    for said in (table.class_names, class_balance):
        if said is not None:
            return len(said)
    if table.specialties is not None and np.ndim(table.specialties) == 2:
        return int(np.shape(table.specialties)[1])
    votes = table.votes.data if hasattr(table.votes, "tocsr") else table.votes
    highest = max((np.max(part, initial=UNLABELED) for part in (votes, y) if part is not None), default=UNLABELED)
    return int(highest) + 1 if np.isfinite(highest) else 2  # the fit names the row of what is not finite


def _vote_place(row: int, lf: int = 0, *_: int) -> str:
    return f"votes, row {row}, labeling function {lf}"

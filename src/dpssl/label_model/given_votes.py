"""Step 2's votes and labels as a user has them: in arrays, tables or files, by class number or by class name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN, UNLABELED
from dpssl.errors import InputError
from dpssl.label_model.answers import answer_columns, pivot_answers
from dpssl.label_model.vote_files import read_votes
from dpssl.label_model.vote_table import NO_VOTES, VoteTable, is_one_of
from dpssl.named_classes import MOST_CLASSES, ClassReader, classes_in_words, new_numbers


def as_vote_table(votes: Any, class_names: list[str] | None = None) -> VoteTable:
    """Votes by class number, with what comes along: of an array, nested lists, a DataFrame, a sparse matrix or a file.

    Names become numbers in the order of `class_names`, or of a file's own; else in that of the alphabet.
    """
    if isinstance(votes, str | Path):
        return read_votes(votes)
    table = votes if isinstance(votes, VoteTable) else VoteTable(votes, class_names=class_names)
    if hasattr(table.votes, "tocsr"):
        return table
    if hasattr(votes, "iloc") and hasattr(votes, "columns"):
        return _of_frame(votes, class_names)
    try:
        array = np.asarray(table.votes)
    except ValueError as problem:
        raise InputError(f"votes are no matrix ({problem}); give every row as many, -1 where one abstains") from None
    return replace(table, votes=array).numbered(lambda row=0, lf=0, *_: f"votes, row {row}, labeling function {lf}")


def _of_frame(frame: Any, class_names: list[str] | None) -> VoteTable:
    """A pandas DataFrame, read as a file with these columns is: a missing cell abstains, answers may be one a line."""
    names = [str(name) for name in frame.columns]
    if found := answer_columns(names):
        items, annotators, answers = (frame.iloc[:, column] for column in found)
        return pivot_answers(items, annotators, answers, lambda row: f"votes, row {row}")
    columns = [column for column, name in enumerate(names) if not is_one_of(name, NO_VOTES)]
    votes = frame.iloc[:, columns]
    has_names = list(frame.columns) != list(range(len(names)))  # and not the numbers that pandas gives an array's
    lf_names = [names[column] for column in columns] if has_names else None
    if all(dtype.kind in "iuf" for dtype in votes.dtypes):
        numbers = votes.to_numpy(dtype=np.float64, na_value=np.nan)  # perhaps the caller's own memory
        numbers = np.where(np.isnan(numbers), float(ABSTAIN), numbers)
        return VoteTable(numbers, class_names=class_names, lf_names=lf_names)
    table = VoteTable(votes.to_numpy(dtype=object), class_names=class_names, lf_names=lf_names)
    table = table.numbered(lambda row, lf: f"votes, row {row}, column {names[columns[lf]]!r}")
    return table if class_names else table.without_texts("votes")  # of known classes, every cell is one


def read_given(
    votes: Any, y: Any, confidence: Any, specialties: Any, class_names: list[str] | None
) -> tuple[VoteTable, NDArray[Any] | None, list[str] | None]:
    """Votes with what comes along, labels, and the class names they have in common; None where classes are numbers.

    class_names: the classes there are; without them, the names met in votes and labels.
    confidence, specialties: the caller's, which go before what a file holds.
    """
    table, labels, names = _match_classes(as_vote_table(votes, class_names), y, class_names)
    given = {"confidence": confidence, "specialties": specialties}
    return replace(table, **{name: value for name, value in given.items() if value is not None}), labels, names


def _match_classes(
    table: VoteTable, y: Any, class_names: list[str] | None
) -> tuple[VoteTable, NDArray[Any] | None, list[str] | None]:
    reader = ClassReader(class_names)
    labels = None if y is None else reader.read(np.asarray(y), label_place)
    names = _common_names(table, reader) if class_names is None else class_names
    if table.class_names not in (None, names) and names is not None:
        table = _with_classes(table, names)
    if class_names is None and labels is not None and reader.met_names and names is not None:
        labels = new_numbers(reader.found, names)[labels]
    return table, labels, names


def _with_classes(table: VoteTable, names: list[str]) -> VoteTable:
    """The same with the numbers that its classes have among `names`, in all that a file may hold by class."""
    old = table.class_names or []
    if unknown := [name for name in old if name not in names]:
        raise InputError(f"votes: {unknown[0]!r} is no class; {classes_in_words(names)}")
    order = new_numbers(old, names)

    def moved(by_class: Any, n_axes: int) -> Any:
        n_given = np.shape(by_class)[-1] if np.ndim(by_class) == n_axes else 0
        if n_given not in (len(old), len(old) + 1):  # one more: what is last belongs to abstentions
            return by_class
        given = np.asarray(by_class)
        there = np.zeros((*given.shape[:-1], n_given - len(old) + len(names)), given.dtype)
        there[..., order[:n_given]] = given
        return there

    return replace(
        table.renumbered(order, names), specialties=moved(table.specialties, 2), confidence=moved(table.confidence, 3)
    )


def read_labels(y: Any, class_names: Sequence[str]) -> NDArray[Any]:
    """Labels by number, of the classes that there are; none of them has a name where `class_names` is empty."""
    return ClassReader(class_names).read(np.asarray(y), label_place)


def label_place(row: int = 0, *_: int) -> str:
    return f"y, row {row}"


def _common_names(table: VoteTable, reader: ClassReader) -> list[str] | None:
    """All names of votes and labels in alphabetical order, a file's own list of them as it is."""
    if not reader.met_names:
        return table.class_names
    if table.class_names is None:
        raise InputError("y holds class names, but the votes are class numbers; give class_names, in their order")
    others = sorted(set(reader.found) - set(table.class_names))
    return sorted([*table.class_names, *others]) if others else table.class_names


def count_classes(table: VoteTable, y: NDArray[Any] | None, class_balance: Any = None) -> int:
    """How many classes there are where nobody says: of names, shares or specialties, or up to the highest number."""
    for said in (table.class_names, class_balance):
        if said is not None:
            return int(np.size(said))
    if table.specialties is not None and np.ndim(table.specialties) == 2:
        return int(np.shape(table.specialties)[1])
    votes = table.votes.data if hasattr(table.votes, "tocsr") else table.votes
    numbers = [part for part in (votes, y) if part is not None and part.dtype.kind in "iuf"]
    highest = max((np.fmax.reduce(part, axis=None, initial=UNLABELED) for part in numbers), default=UNLABELED)
    if not np.isfinite(highest) or (highest < 1 and any(np.isnan(part).any() for part in numbers)):
        return 2  # the fit names the row
    if highest >= MOST_CLASSES:
        raise InputError(f"a vote or label names class {highest:g}; those that are counted go up to {MOST_CLASSES - 1}")
    return int(highest) + 1

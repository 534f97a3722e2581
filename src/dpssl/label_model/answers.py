"""Step 2's input in long form: one answer a line, as crowd platforms export it and crowd-kit takes it.

task,worker,label                       id      anna  ben
photo-1,anna,cat          becomes       photo-1  cat   dog
photo-1,ben,dog                         photo-2        dog
photo-2,ben,dog
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.errors import InputError
from dpssl.label_model.vote_table import ID_COLUMNS, VoteTable
from dpssl.named_classes import ClassReader, Place

ITEM_COLUMNS = ("task", "item", "question", "example", "image", "object", *ID_COLUMNS)
ANNOTATOR_COLUMNS = ("worker", "annotator", "rater", "labeler", "labeller", "performer", "user")
ANSWER_COLUMNS = ("label", "vote", "answer", "response", "class")


def answer_columns(header: Sequence[str]) -> tuple[int, int, int] | None:
    """Where item, annotator and answer stand in a file of answers; None where the columns are labeling functions.

    Other columns are passed over, unless the items are ids: a labeling function beside ids may be called `user`.
    """
    names = [name.strip().lower().removesuffix("_id") for name in header]
    found = [
        next((names.index(name) for name in known if name in names), None)
        for known in (ITEM_COLUMNS, ANNOTATOR_COLUMNS, ANSWER_COLUMNS)
    ]
    item, annotator, answer = found
    if item is None or annotator is None or answer is None or (names[item] in ID_COLUMNS and len(names) > len(found)):
        return None
    return item, annotator, answer


def pivot_answers(items: Any, annotators: Any, answers: Any, place: Place | None = None) -> VoteTable:
    """One row an item, one column an annotator, both in the order of their first answer.

    items, annotators, answers: (m,) each, such as three columns of a DataFrame; an answer is a class number or a class
        name, and an empty one is none. An annotator may answer an item more than once if it is the same answer.
    """
    where = place or (lambda row: f"answer {row}")
    reader = ClassReader()
    given = reader.read(np.asarray(answers), where).astype(np.int64)  # (m,)
    ids, rows = _numbered(items)
    names, columns = _numbered(annotators)
    if not len(given) == len(rows) == len(columns):
        raise InputError(f"{len(rows)} items, {len(columns)} annotators, {len(given)} answers; give as many of each")
    votes = np.full((len(ids), len(names)), ABSTAIN, dtype=np.int64)
    spoken = np.flatnonzero(given != ABSTAIN)[::-1]  # the first of several answers stays
    votes[rows[spoken], columns[spoken]] = given[spoken]
    other = spoken[votes[rows[spoken], columns[spoken]] != given[spoken]]
    if len(other):
        row = int(other[-1])
        raise InputError(
            f"{where(row)}: {names[columns[row]]} has answered {ids[rows[row]]} before, otherwise; keep one answer"
        )
    table = VoteTable(votes=votes, ids=ids, lf_names=[str(name) for name in names])
    return table.in_alphabetical_order(reader)


def _numbered(values: Any) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """Distinct values as text in the order of their appearance, and the number of each entry."""
    text = np.asarray(values).astype(np.str_)
    distinct, first, inverse = np.unique(text, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[inverse]

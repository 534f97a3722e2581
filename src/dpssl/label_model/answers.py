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
from dpssl.named_classes import NO_NAME, ClassReader, Place, as_text, distinct, whole_numbers

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
    given = whole_numbers(reader.read(np.asarray(answers), where), where)  # (m,)
    ids, rows = _numbered(items, lambda row: f"{where(row)}: names no item")
    names, columns = _numbered(annotators, lambda row: f"{where(row)}: does not say whose it is")
    if not len(given) == len(rows) == len(columns):
        raise InputError(f"{len(rows)} items, {len(columns)} annotators, {len(given)} answers; give as many of each")
    votes = np.full((len(ids), len(names)), ABSTAIN, dtype=np.int16)
    spoken = np.flatnonzero(given != ABSTAIN)[::-1]  # the first of several answers stays
    votes[rows[spoken], columns[spoken]] = given[spoken]
    other = spoken[votes[rows[spoken], columns[spoken]] != given[spoken]]
    if len(other):
        row = int(other[-1])
        raise InputError(
            f"{where(row)}: {names[columns[row]]} has answered {ids[rows[row]]} before, otherwise; keep one answer"
        )
    return VoteTable(votes=votes, ids=np.array(ids), lf_names=names).in_alphabetical_order(reader)


def _numbered(values: Any, without: Place) -> tuple[list[str], NDArray[np.int64]]:
    """Distinct values as text in the order of their appearance, and the number of each entry."""
    different, first, which = distinct(np.asarray(values))
    texts = [as_text(value) for value in different]
    if NO_NAME in texts:
        raise InputError(f"{without(int(first[texts.index(NO_NAME)]))}; fill the cell, or take the line out")
    rank = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return list(rank), np.array([rank[text] for text in texts], dtype=np.int64)[which]

"""The rows of a file of votes and their ids. An id names one row in every file that is made from the votes."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.errors import InputError
from dpssl.label_model import VoteTable
from dpssl.step_files import string_array

N_SHOWN = 3  # rows in a message


class RowIds:
    """The ids of the rows of votes: the file's own, or row numbers, which take no memory."""

    def __init__(self, source: str, table: VoteTable) -> None:
        self.n_rows = len(table.votes) if table.votes.ndim else 0
        if table.ids is not None and np.shape(table.ids) != (self.n_rows,):
            raise InputError(f"{source}: ids have shape {np.shape(table.ids)}; give one for each of {self.n_rows} rows")
        self._given = None if table.ids is None else string_array(table.ids)
        if self._given is not None and len(set(self._given.tolist())) < self.n_rows:
            raise InputError(f"{source}: {self._about_repeated(source)}")

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"U{len(str(self.n_rows - 1))}") if self._given is None else self._given.dtype

    def __getitem__(self, rows: slice) -> NDArray[np.str_]:
        return np.arange(rows.start, rows.stop).astype(self.dtype) if self._given is None else self._given[rows]

    def row_of(self, id: str) -> int | None:
        if self._given is not None:
            return self._row_by_id.get(id)
        is_row = id.isascii() and id.isdecimal() and len(id) <= len(str(self.n_rows)) and int(id) < self.n_rows
        return int(id) if is_row else None

    @cached_property
    def _row_by_id(self) -> dict[str, int]:
        return {id: row for row, id in enumerate(self._given.tolist() if self._given is not None else ())}

    def _about_repeated(self, source: str) -> str:
        assert self._given is not None
        id = next(id for row, id in enumerate(self._given.tolist()) if self._row_by_id[id] != row)
        is_text = source.endswith(".csv")
        rows = [str(row + 2 * is_text) for row in np.flatnonzero(self._given == id).tolist()]
        places = f"{'lines' if is_text else 'rows'} {', '.join(rows[:N_SHOWN])}{', …' if len(rows) > N_SHOWN else ''}"
        return (
            f"the id {id!r} is that of {len(rows)} rows ({places}), but has to name one; give each row an id of its "
            "own, or leave the ids out, and they are row numbers. Where a row is one answer, call its columns task, "
            "worker and label"
        )

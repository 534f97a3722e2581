"""Step 2's input files: votes with what may come beside them, from .npz, .npy, .csv or .parquet. No pickles are loaded.

| file | votes | beside them |
| --- | --- | --- |
| .npz | array `votes` or `L`, (n, K), -1 = abstain | `confidence`, `specialties`, `ids`, `class_names`, `y` |
| .npy | the array itself, memory-mapped | |
| .csv, .parquet | one column per labeling function; empty = -1 = abstain | columns `id` and `y` (or `label`) |
| the same, in long form | one answer a line: columns for item, annotator and answer (`answers`) | |

A vote is a class number or a class name, all of a file of one kind; names become numbers in alphabetical order.

`y` is whatever labels the file carries: possibly the truth of every row. Nothing in this package fits on it unless the
caller passes it to `fit`.
"""

import csv
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN, UNLABELED
from dpssl.errors import UNREADABLE_NPZ, InputError
from dpssl.label_model.answers import answer_columns, pivot_answers
from dpssl.label_model.vote_table import ID_COLUMNS, LABEL_COLUMNS, NO_VOTES, VoteTable, is_one_of
from dpssl.named_classes import ClassReader, distinct_names, whole_numbers

SEPARATORS = (",", ";", "\t", "|")  # the first that the header has
PARQUET_ROWS, CSV_ROWS = 1 << 16, 1 << 14  # rows read at a time


def read_votes(path: str | Path) -> VoteTable:
    """The votes in a .npz, .npy, .csv or .parquet file, by its ending."""
    path = Path(path)
    readers = {".npz": _read_npz, ".npy": _read_npy, ".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise InputError(
            f"{path}: cannot read votes from a file of this kind; give a .npz, .npy, .csv or .parquet file"
        )
    if not path.is_file():
        raise InputError(f"{path}: no such file of votes")
    return readers[path.suffix](path)


def _read_npz(path: Path) -> VoteTable:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except UNREADABLE_NPZ as error:
        raise InputError(
            f"{path}: damaged or not a plain .npz file ({error}); write it again with numpy.savez"
        ) from error
    votes = arrays.get("votes", arrays.get("L"))
    if votes is None:
        raise InputError(f"{path}: no array `votes` or `L` (found: {', '.join(arrays) or 'nothing'})")
    names = arrays.get("class_names")
    table = VoteTable(
        votes=votes,
        confidence=arrays.get("confidence"),
        specialties=arrays.get("specialties"),
        ids=arrays.get("ids"),
        class_names=None if names is None else distinct_names(names.ravel().tolist(), f"{path}: class_names"),
        y=arrays.get("y"),
    )
    return table.numbered(lambda row=0, *_: f"{path}: row {row}")


def _read_npy(path: Path) -> VoteTable:
    try:
        table = VoteTable(votes=np.load(path, mmap_mode="r", allow_pickle=False))
    except UNREADABLE_NPZ as error:
        raise InputError(
            f"{path}: damaged or not a plain .npy file ({error}); write it again with numpy.save"
        ) from error
    return table.numbered(lambda row=0, *_: f"{path}: row {row}")


def _read_csv(path: Path) -> VoteTable:
    """Block by block: a cell takes 50 bytes as text and 2 as a vote."""
    parts: list[VoteTable] = []
    reader = ClassReader()
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            rows = csv.reader(file, delimiter=next((mark for mark in SEPARATORS if mark in first), ","))
            header, start = [name.strip() for name in next(rows, [])], 0
            if columns := answer_columns(header):
                return _long_table(path, columns, _columns(path, header, list(rows)))
            while cells := list(islice(rows, CSV_ROWS)):
                parts.append(_csv_part(path, header, start, cells, reader))
                start += len(cells)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a readable CSV file ({error})") from error
    if not parts:
        raise InputError(f"{path}: no rows of votes below the header")
    ids = [part.ids for part in parts if part.ids is not None]
    labels = [part.y for part in parts if part.y is not None]
    table = VoteTable(
        votes=np.concatenate([part.votes for part in parts]),
        ids=np.concatenate(ids) if ids else None,
        y=np.concatenate(labels) if labels else None,
        lf_names=parts[0].lf_names,
    )
    return table.in_alphabetical_order(reader).without_texts(str(path))


def _csv_part(path: Path, header: list[str], start: int, cells: list[list[str]], reader: ClassReader) -> VoteTable:
    filler = _ColumnFiller(path, header, len(cells), np.int16, reader, first_row=start)
    filler.fill(0, _columns(path, header, cells, start))
    return filler.table()


def _columns(path: Path, header: list[str], cells: list[list[str]], start: int = 0) -> list[NDArray[np.str_]]:
    """Rows of a CSV file, the first of them number `start`, by columns."""
    for number, row in enumerate(cells, start=start):
        if len(row) != len(header):
            raise InputError(f"{path}, {place(path, number)}: {len(row)} cells, but the header has {len(header)}")
    return [np.array(column) for column in zip(*cells, strict=True)]


def _long_table(path: Path, found: tuple[int, int, int], columns: list[NDArray[Any]]) -> VoteTable:
    """A file of answers, one a line."""
    if not columns or not len(columns[0]):
        raise InputError(f"{path}: no answers below the header")
    items, annotators, answers = (columns[column] for column in found)
    return pivot_answers(items, annotators, answers, lambda row: f"{path}, {place(path, row)}")


def _read_parquet(path: Path) -> VoteTable:
    """Batch by batch into one array of votes, so that nothing but that array grows with the file."""
    try:
        from pyarrow import ArrowException, int8, parquet
    except ModuleNotFoundError as error:
        raise InputError(f"{path}: reading Parquet needs pyarrow; pip install 'dpssl[parquet]'") from error
    reader = ClassReader()
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            if columns := answer_columns(schema.names):
                return _long_table(path, columns, [_arrow_column(column) for column in file.read().columns])
            of_votes = [field for field in schema if not is_one_of(field.name, NO_VOTES)]
            dtype = np.int8 if all(field.type == int8() for field in of_votes) else np.int16
            filler = _ColumnFiller(path, schema.names, file.metadata.num_rows, dtype, reader)
            start = 0
            for batch in file.iter_batches(batch_size=PARQUET_ROWS):
                filler.fill(start, [_arrow_column(column) for column in batch.columns])
                start += batch.num_rows
    except InputError:
        raise
    except (OSError, ValueError, ArrowException) as error:
        raise InputError(f"{path}: damaged or not a Parquet file ({error})") from error
    return filler.table().in_alphabetical_order(reader).without_texts(str(path))


def _arrow_column(column: Any) -> NDArray[Any]:
    """An Arrow column as numpy; null integers are -1, other nulls None or NaN."""
    from pyarrow import compute, types

    if types.is_integer(column.type) and column.null_count:
        column = compute.fill_null(column, ABSTAIN)
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return np.asarray(column.to_numpy(zero_copy_only=False))


class _ColumnFiller:
    """Named columns, some rows at a time, into the arrays of a VoteTable."""

    def __init__(
        self,
        path: Path,
        names: list[str],
        n_rows: int,
        dtype: type[np.signedinteger[Any]],
        reader: ClassReader,
        first_row: int = 0,
    ) -> None:
        self._path, self._names, self._reader, self._first_row = path, names, reader, first_row
        self._lf_names = [name for name in names if not is_one_of(name, NO_VOTES)]
        if not self._lf_names or not n_rows:
            raise InputError(f"{path}: no column or no row of votes (columns: {', '.join(names) or 'none'})")
        self._votes = np.empty((n_rows, len(self._lf_names)), dtype=dtype)
        self._y = np.full(n_rows, UNLABELED) if any(is_one_of(name, LABEL_COLUMNS) for name in names) else None
        self._ids: list[str] | None = [] if any(is_one_of(name, ID_COLUMNS) for name in names) else None

    def fill(self, start: int, columns: list[NDArray[Any]]) -> None:
        lf, first = 0, self._first_row + start  # where the rows stand in the file
        for name, column in zip(self._names, columns, strict=True):
            rows = slice(start, start + len(column))
            if self._ids is not None and is_one_of(name, ID_COLUMNS):
                self._ids.extend(map(str, column))
            elif self._y is not None and is_one_of(name, LABEL_COLUMNS):
                self._y[rows] = self._class_numbers(name, first, column)
            elif not is_one_of(name, NO_VOTES):
                self._votes[rows, lf] = self._class_numbers(name, first, column)
                lf += 1

    def table(self) -> VoteTable:
        ids = None if self._ids is None else np.asarray(self._ids)
        return VoteTable(votes=self._votes, ids=ids, y=self._y, lf_names=self._lf_names)

    def _class_numbers(self, name: str, start: int, column: NDArray[Any]) -> NDArray[Any]:
        """One column as whole numbers; empty, null and NaN cells are -1."""

        def where(row: int) -> str:
            return f"{self._path}, {place(self._path, start + row)}, column {name!r}"

        return whole_numbers(self._reader.read(column, where), where)


def place(path: Path, row: int) -> str:
    """Where a row, counted from 0, stands in a file: by line in a text with a header, else by its number."""
    return f"line {row + 2}" if path.suffix == ".csv" else f"row {row}"

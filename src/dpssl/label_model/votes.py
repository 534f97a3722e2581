"""Step 2's input files: votes with what may come beside them, from .npz, .npy, .csv or .parquet. No pickles are loaded.

| file | votes | beside them |
| --- | --- | --- |
| .npz | array `votes` or `L`, (n, K), -1 = abstain | `confidence`, `specialties`, `ids`, `class_names`, `y` |
| .npy | the array itself, memory-mapped | |
| .csv, .parquet | one column per labeling function; empty = -1 = abstain | columns `id` and `y` (or `label`) |

`y` is whatever labels the file carries: possibly the truth of every row. Nothing in this package fits on it unless the
caller passes it to `fit`.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN, UNLABELED
from dpssl.errors import UNREADABLE_NPZ, InputError

Votes = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ID_COLUMNS = ("id", "ids")
OTHER_SEPARATORS = (";", "\t", "|")
LABEL_COLUMNS = ("y", "label")
PARQUET_ROWS, CSV_ROWS = 1 << 16, 1 << 14  # rows read at a time
CHUNK_VOTES = 1 << 22  # votes handled at a time: a few tens of MB, whatever the number of rows


@dataclass(frozen=True)
class VoteTable:
    """A file of votes. Only `votes` is always there; the numbers are as stored, checked when a model is fitted."""

    votes: NDArray[Any]  # (n, K), -1 = abstain
    confidence: NDArray[Any] | None = None  # (n, K) probability of each vote
    specialties: Bools | None = None  # (K, C)
    ids: NDArray[Any] | None = None  # (n,)
    class_names: list[str] | None = None
    y: NDArray[np.int64] | None = None  # (n,) labels the file carries, -1 = none
    lf_names: list[str] | None = None


def vote_dtype(n_classes: int) -> type[np.signedinteger[Any]]:
    """The smallest integer that holds every class and -1."""
    return np.int8 if n_classes <= 127 else np.int16 if n_classes <= 32767 else np.int32


def covered(votes: Any) -> Bools:
    """Which rows have at least one vote, (n,) bool."""
    if hasattr(votes, "tocsr"):
        return np.asarray(np.diff(votes.tocsr().indptr) > 0)
    array: Bools = (np.asarray(votes) != ABSTAIN).any(axis=1)
    return array


def count_votes(votes: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """How often each LF votes for each class, (K, C)."""
    n_lfs = votes.shape[1]
    counts = np.zeros(n_lfs * (n_classes + 1), dtype=np.int64)
    first_outcome = np.arange(n_lfs) * (n_classes + 1)
    for rows in chunks(*votes.shape):
        counts += np.bincount((votes[rows] + (first_outcome + 1)).ravel(), minlength=len(counts))
    return counts.reshape(n_lfs, n_classes + 1)[:, 1:]  # outcome 0 is abstain


def chunks(n_rows: int, width: int) -> Iterator[slice]:
    """Row ranges of bounded size that cover all rows in order; width is that of the widest array made of them."""
    size = max(1, CHUNK_VOTES // max(1, width))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def unanimous_votes(votes: NDArray[Any]) -> NDArray[Any]:
    """The class of every row on which two or more LFs speak and all say the same, (n,); -1 for the other rows."""
    highest = votes.max(axis=1)
    lowest = np.where(votes == ABSTAIN, np.iinfo(votes.dtype).max, votes).min(axis=1)
    several = (votes != ABSTAIN).sum(axis=1) >= 2
    return np.asarray(np.where(several & (highest == lowest), highest, ABSTAIN))


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
    return VoteTable(
        votes=votes,
        confidence=arrays.get("confidence"),
        specialties=arrays.get("specialties"),
        ids=arrays.get("ids"),
        class_names=None if names is None else [str(name) for name in names],
        y=None if "y" not in arrays else arrays["y"].astype(np.int64),
    )


def _read_npy(path: Path) -> VoteTable:
    try:
        return VoteTable(votes=np.load(path, mmap_mode="r", allow_pickle=False))
    except UNREADABLE_NPZ as error:
        raise InputError(
            f"{path}: damaged or not a plain .npy file ({error}); write it again with numpy.save"
        ) from error


def _read_csv(path: Path) -> VoteTable:
    """Block by block: a cell takes 50 bytes as text and 2 as a vote."""
    parts: list[VoteTable] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header, start = next(rows, []), 0
            while cells := list(islice(rows, CSV_ROWS)):
                parts.append(_csv_part(path, header, start, cells))
                start += len(cells)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a readable CSV file ({error})") from error
    if not parts:
        raise InputError(f"{path}: no rows of votes below the header")
    ids = [part.ids for part in parts if part.ids is not None]
    labels = [part.y for part in parts if part.y is not None]
    return VoteTable(
        votes=np.concatenate([part.votes for part in parts]),
        ids=np.concatenate(ids) if ids else None,
        y=np.concatenate(labels) if labels else None,
        lf_names=parts[0].lf_names,
    )


def _csv_part(path: Path, header: list[str], start: int, cells: list[list[str]]) -> VoteTable:
    if len(header) == 1 and any(mark in header[0] for mark in OTHER_SEPARATORS):
        raise InputError(f"{path}: one column, {header[0]!r}; separate columns by commas")
    for number, row in enumerate(cells, start=start):
        if len(row) != len(header):
            raise InputError(f"{path}, {place(path, number)}: {len(row)} cells, but the header has {len(header)}")
    filler = _ColumnFiller(path, header, len(cells), np.int16, first_row=start)
    filler.fill(0, [np.array(column) for column in zip(*cells, strict=True)])
    return filler.table()


def _read_parquet(path: Path) -> VoteTable:
    """Batch by batch into one array of votes, so that nothing but that array grows with the file."""
    try:
        from pyarrow import ArrowException, int8, parquet
    except ModuleNotFoundError as error:
        raise InputError(f"{path}: reading Parquet needs pyarrow; pip install 'dpssl[parquet]'") from error
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            of_votes = [field for field in schema if field.name.lower() not in ID_COLUMNS + LABEL_COLUMNS]
            dtype = np.int8 if all(field.type == int8() for field in of_votes) else np.int16
            filler = _ColumnFiller(path, schema.names, file.metadata.num_rows, dtype)
            start = 0
            for batch in file.iter_batches(batch_size=PARQUET_ROWS):
                filler.fill(start, [_arrow_column(column) for column in batch.columns])
                start += batch.num_rows
    except InputError:
        raise
    except (OSError, ValueError, ArrowException) as error:
        raise InputError(f"{path}: damaged or not a Parquet file ({error})") from error
    return filler.table()


def _arrow_column(column: Any) -> NDArray[Any]:
    """An Arrow column as numpy; null integers are -1, other nulls None or NaN."""
    from pyarrow import compute, types

    if types.is_integer(column.type) and column.null_count:
        column = compute.fill_null(column, ABSTAIN)
    return np.asarray(column.to_numpy(zero_copy_only=False))


class _ColumnFiller:
    """Named columns, some rows at a time, into the arrays of a VoteTable."""

    def __init__(
        self, path: Path, names: list[str], n_rows: int, dtype: type[np.signedinteger[Any]], first_row: int = 0
    ) -> None:
        self._path, self._names, self._first_row = path, names, first_row
        self._lf_names = [name for name in names if name.lower() not in ID_COLUMNS + LABEL_COLUMNS]
        if not self._lf_names or not n_rows:
            raise InputError(f"{path}: no column or no row of votes (columns: {', '.join(names) or 'none'})")
        self._votes = np.empty((n_rows, len(self._lf_names)), dtype=dtype)
        self._y = np.full(n_rows, UNLABELED) if any(name.lower() in LABEL_COLUMNS for name in names) else None
        self._ids: list[str] | None = [] if any(name.lower() in ID_COLUMNS for name in names) else None

    def fill(self, start: int, columns: list[NDArray[Any]]) -> None:
        lf, first = 0, self._first_row + start  # where the rows stand in the file
        for name, column in zip(self._names, columns, strict=True):
            rows = slice(start, start + len(column))
            if self._ids is not None and name.lower() in ID_COLUMNS:
                self._ids.extend(map(str, column))
            elif self._y is not None and name.lower() in LABEL_COLUMNS:
                self._y[rows] = _class_numbers(self._path, name, first, column)
            else:
                self._votes[rows, lf] = _class_numbers(self._path, name, first, column)
                lf += 1

    def table(self) -> VoteTable:
        ids = None if self._ids is None else np.asarray(self._ids)
        return VoteTable(votes=self._votes, ids=ids, y=self._y, lf_names=self._lf_names)


def _class_numbers(path: Path, name: str, start: int, column: NDArray[Any]) -> NDArray[Any]:
    """One column as whole numbers; empty, null and NaN cells are -1."""
    if column.dtype.kind in "iu":
        numbers = column
    else:
        numbers = _numbers(column) if column.dtype.kind in "OUS" else column
        numbers = np.where(np.isnan(numbers), float(ABSTAIN), numbers)
    bad = (numbers != np.floor(numbers)) | (np.abs(numbers) > 32767)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError(
            f"{path}, {place(path, start + row)}, column {name!r}: {column[row]!s} is not a class number; "
            "write 0, 1, 2, …, and leave the cell empty where there is no vote"
        )
    return numbers


def place(path: Path, row: int) -> str:
    """Where a row, counted from 0, stands in a file: by line in a text with a header, else by its number."""
    return f"line {row + 2}" if path.suffix == ".csv" else f"row {row}"


def _numbers(column: NDArray[Any]) -> Floats:
    """A column of text, at once where all its cells are empty or numbers."""
    if column.dtype.kind == "U":
        try:
            return np.where(column == "", str(ABSTAIN), column).astype(np.float64)
        except ValueError:
            pass  # blanks, or a cell that is no number: cell by cell
    return np.array([_number(value) for value in column])


def _number(value: Any) -> float:
    """A cell as a number: NaN when empty, infinity when it is no number."""
    text = "" if value is None else str(value).strip()
    try:
        return float(text) if text else float("nan")
    except ValueError:
        return float("inf")

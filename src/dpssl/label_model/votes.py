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
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN, UNLABELED
from dpssl.errors import InputError

Votes = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ID_COLUMNS = ("id", "ids")
LABEL_COLUMNS = ("y", "label")


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
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
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
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{path}: damaged or not a plain .npy file ({error}); write it again with numpy.save"
        ) from error


def _read_csv(path: Path) -> VoteTable:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a readable CSV file ({error})") from error
    if len(rows) < 2:
        raise InputError(f"{path}: no rows of votes below the header")
    header, cells = rows[0], rows[1:]
    for number, row in enumerate(cells, start=2):
        if len(row) != len(header):
            raise InputError(f"{path}, line {number}: {len(row)} cells, but the header has {len(header)}")
    return _from_columns(path, header, [list(column) for column in zip(*cells, strict=True)])


def _read_parquet(path: Path) -> VoteTable:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError as error:
        raise InputError(f"{path}: reading Parquet needs pyarrow; pip install 'dpssl[parquet]'") from error
    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise InputError(f"{path}: damaged or not a Parquet file ({error})") from error
    return _from_columns(path, table.column_names, [_parquet_column(column) for column in table.columns])


def _parquet_column(column: Any) -> Sequence[Any]:
    """An Arrow column: integers straight to numpy, with -1 for null; anything else as Python values."""
    from pyarrow import compute, types

    if types.is_integer(column.type):
        numbers: NDArray[Any] = compute.fill_null(column, ABSTAIN).to_numpy()
        return numbers  # type: ignore[return-value]
    values: list[Any] = column.to_pylist()
    return values


def _from_columns(path: Path, names: list[str], columns: list[Sequence[Any]]) -> VoteTable:
    ids: NDArray[Any] | None = None
    y: NDArray[np.int64] | None = None
    votes: list[NDArray[Any]] = []
    lf_names: list[str] = []
    for name, column in zip(names, columns, strict=True):
        if name.lower() in ID_COLUMNS:
            ids = np.asarray([str(value) for value in column])
        elif name.lower() in LABEL_COLUMNS:
            y = _class_numbers(path, name, column, UNLABELED).astype(np.int64)
        else:
            votes.append(_class_numbers(path, name, column, ABSTAIN))
            lf_names.append(name)
    if not votes:
        raise InputError(f"{path}: no column of votes (found: {', '.join(names)})")
    return VoteTable(votes=np.stack(votes, axis=1), ids=ids, y=y, lf_names=lf_names)


def _class_numbers(path: Path, name: str, column: Sequence[Any], missing: int) -> NDArray[Any]:
    """One column as class numbers; empty, null and NaN cells are `missing`."""
    if isinstance(column, np.ndarray):
        return column
    numbers = np.empty(len(column), dtype=np.int16)
    for row, value in enumerate(column):
        text = "" if value is None or value != value else str(value).strip()
        try:
            number = float(text or missing)
        except ValueError:
            number = np.nan
        if not number.is_integer() or abs(number) > 32767:
            raise InputError(
                f"{path}, row {row}, column {name!r}: {value!r} is not a class number; "
                "write 0, 1, 2, …, and leave the cell empty where there is no vote"
            )
        numbers[row] = int(number)
    return numbers

"""A CSV or Parquet file of labels: which column names the image, which its class, and which image each row means.

Rows may name an image by its path below the data folder, by its file name alone where that is unique, or by that
without suffix. A row with an empty class (or -1) says nothing. Whatever does not fit is an error that names the row.
"""

import csv
import posixpath
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from dpssl.errors import InputError

NAME_COLUMNS = (
    "path", "file_path", "filepath", "image_path", "img_path", "file_name", "filename", "image_name", "file", "image",
    "img", "photo", "picture", "name", "id", "key", "image_id", "index", "row",
)  # fmt: skip
LABEL_COLUMNS = ("label", "class", "target", "category", "class_name", "label_name", "y")
DELIMITERS = ",;\t|"


class LabelRow(NamedTuple):
    line: int  # in the file, for messages
    name: str
    label: str


def read_label_table(path: Path) -> list[LabelRow]:
    """The rows that have a label."""
    if not path.is_file():
        raise InputError(f"--labels {path}: no such file")
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        header, rows = _read_parquet(path)
    elif suffix in (".csv", ".tsv", ".txt"):
        header, rows = _read_csv(path)
    else:
        raise InputError(f"--labels {path}: expected a .csv or .parquet file")
    name_column, label_column = _columns(path, header)
    table = []
    for line, row in rows:
        if len(row) <= max(name_column, label_column):
            raise InputError(f"{path}, line {line}: has {len(row)} columns, the header {len(header)}; complete the row")
        name, label = str(row[name_column]).strip(), plain_label(row[label_column])
        for cell in (name, label):
            start, is_broken, _ = cell.replace("\r", "\n").partition("\n")
            if is_broken:
                raise InputError(
                    f"{path}, line {line}: {start!r} goes on in the next line; close its quote, or take the break out"
                )
        if label and not name:
            raise InputError(f"{path}, line {line}: names no image for the label {label!r}")
        if label:
            table.append(LabelRow(line, name, label))
    if not table:
        raise InputError(f"{path}: holds no label; give at least one image of each class")
    return table


def plain_label(value: Any) -> str:
    """A class as text: 3, 3.0 and "3.0" (as tables with gaps write integers) are "3"; none, "" and -1 are no label."""
    if value is None or value != value:
        return ""
    text = str(value).strip()
    if text.endswith(".0") and text[:-2].lstrip("-").isdecimal():
        text = text[:-2]
    return "" if text == "-1" else text


def match_rows(
    rows: Sequence[LabelRow],
    ids: Iterable[str],
    table: Path,
    root: Path,
    skipped: Sequence[tuple[str, str]] = (),
    passed_over: Iterable[str] = (),
) -> dict[str, str]:
    """The class of each image that a row names, by id.

    `skipped` names files that are there but are not read; rows of images `passed_over` say nothing.
    """
    wanted = [_relative(row, table, root) for row in rows]
    found, others = (_Names(set(wanted), root.name, images) for images in (ids, passed_over))
    labels: dict[str, str] = {}
    first_line: dict[str, int] = {}
    missing: list[tuple[LabelRow, str]] = []
    for row, name in zip(rows, wanted, strict=True):
        candidates = found.candidates(name)
        if not candidates:
            if not others.candidates(name):
                missing.append((row, name))
            continue
        if len(candidates) > 1:
            raise InputError(
                f"{table}, line {row.line}: {row.name!r} may be {candidates[0]!r} or {candidates[1]!r}; give the path "
                f"below {root}"
            )
        image = candidates[0]
        if labels.setdefault(image, row.label) != row.label:
            raise InputError(
                f"{table}, line {row.line}: {row.name!r} is {row.label!r} here and {labels[image]!r} in line "
                f"{first_line[image]}; keep one of them"
            )
        first_line.setdefault(image, row.line)
    if missing:
        _raise_missing(missing, found, table, root, dict(skipped))
    require_distinct_by_case(labels.values(), str(table))
    return labels


def sorted_classes(labels: Iterable[str]) -> tuple[str, ...]:
    """Class names in order: by number where all are numbers, else by text."""
    names = set(labels)
    return tuple(sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names))


def require_distinct_by_case(labels: Iterable[str], source: str, kind: str = "classes") -> None:
    """An error where two names, of which `source` is the place, differ by case alone."""
    spelled: dict[str, str] = {}
    for label in sorted(set(labels)):
        other = spelled.setdefault(label.casefold(), label)
        if other != label:
            raise InputError(f"{source}: the {kind} {other!r} and {label!r} differ by case alone; use one spelling")


class _Names:
    """Of all images, those that a row may mean: what is kept grows with the rows, not with the images."""

    def __init__(self, wanted: set[str], root: str, images: Iterable[str]) -> None:
        inner = {name.removeprefix(f"{root}/") for name in wanted}  # `photos/a.jpg` where the folder is photos
        self._root, self._wanted = root, wanted | inner
        self._folded = {name.casefold() for name in self._wanted}
        self._by: dict[str, dict[str, list[str]]] = {"path": {}, "file": {}, "stem": {}}
        self._by_case: dict[str, str] = {}
        for image in images:
            self._add(image)

    def _add(self, image: str) -> None:
        file = image.rpartition("/")[2]
        keys = {"path": {image}, "file": {file}, "stem": {posixpath.splitext(file)[0], posixpath.splitext(image)[0]}}
        for kind, names in keys.items():
            for name in names & self._wanted:
                self._by[kind].setdefault(name, []).append(image)
        for name in (image.casefold(), file.casefold()):
            if name in self._folded:
                self._by_case.setdefault(name, image)

    def similar(self, name: str) -> str | None:
        """An image whose name differs by case alone."""
        return self._by_case.get(name.casefold())

    def candidates(self, name: str) -> list[str]:
        for attempt in (name, name.removeprefix(f"{self._root}/")):
            for images in self._by.values():
                if attempt in images:
                    return images[attempt]
        return []


def _relative(row: LabelRow, table: Path, root: Path) -> str:
    """The row's path as an id: below `root`, with forward slashes."""
    name = row.name.replace("\\", "/")
    if PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive:
        for base in (root.absolute(), root.resolve()):
            if PurePosixPath(name).is_relative_to(base.as_posix()):
                return posixpath.normpath(PurePosixPath(name).relative_to(base.as_posix()).as_posix())
    else:
        name = posixpath.normpath(name)
        if name != ".." and not name.startswith("../"):
            return name
    raise InputError(f"{table}, line {row.line}: {row.name!r} leaves {root}; name an image below it")


def _raise_missing(
    missing: list[tuple[LabelRow, str]], found: _Names, table: Path, root: Path, skipped: dict[str, str]
) -> None:
    row, name = missing[0]
    others = f" (and {len(missing) - 1} more rows like it)" if len(missing) > 1 else ""
    if name in skipped:
        raise InputError(f"{table}, line {row.line}: {row.name!r} {skipped[name]}{others}")
    similar = found.similar(name)
    hint = f"there is {similar!r}: names differ by case" if similar else "correct the path, or take the row out"
    raise InputError(f"{table}, line {row.line}: {row.name!r} is no image of {root}{others}; {hint}")


def _columns(path: Path, header: Sequence[str]) -> tuple[int, int]:
    """Where the image's name and its class are: by the columns' names; of two columns, one known name tells both."""
    plain = [str(name).strip().lower().replace(" ", "_").replace("-", "_") for name in header]
    name = next((plain.index(known) for known in NAME_COLUMNS if known in plain), None)
    label = next((plain.index(known) for known in LABEL_COLUMNS if known in plain), None)
    if len(header) == 2:
        name = 1 - label if name is None and label is not None else name
        label = 1 - name if label is None and name is not None else label
    for column, known, meaning in (
        (name, NAME_COLUMNS, "the image's path or file name"),
        (label, LABEL_COLUMNS, "its class"),
    ):
        if column is None:
            raise InputError(
                f"{path}: has the columns {', '.join(map(repr, header))}; the one with {meaning} must be named "
                f"{', '.join(known[:-1])} or {known[-1]}"
            )
    assert name is not None
    assert label is not None
    return name, label


def _read_csv(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    rows: list[tuple[int, list[str]]] = []
    line = 1  # where a row starts: one with a quote left open may go on to the end of the file
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            # A blank line after the last is a row of no cells, unless a quote is still open there.
            reader = csv.reader(chain(file, ["\n"]), delimiter=max(DELIMITERS, key=first.count))
            for row in reader:
                rows.append((line, row))
                line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}, line {line}: not a readable CSV in UTF-8 ({error}); look for a quote that nothing closes"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--labels {path}: not a readable CSV in UTF-8 ({error})") from error
    line, last = rows.pop()
    if last:
        raise InputError(f"{path}, line {line}: opens a quote that nothing closes; close it, or take it out")
    header = rows[0][1] if rows else []
    return header, [(line, row) for line, row in rows[1:] if any(cell.strip() for cell in row)]


def _read_parquet(path: Path) -> tuple[list[str], list[tuple[int, list[Any]]]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise InputError(f"--labels {path}: Parquet needs pyarrow: pip install 'dpssl[parquet]'") from error
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"--labels {path}: not a readable Parquet file ({error})") from error
    columns = [column.to_pylist() for column in table.columns]
    return table.column_names, [(number, list(row)) for number, row in enumerate(zip(*columns, strict=True), start=1)]

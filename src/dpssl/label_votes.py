"""`dpssl label VOTES`: the label model on votes from anywhere. No image code and no network is imported.

Soft labels are predicted and written a chunk of rows at a time: memory-mapped votes (.npy) may be larger than memory.
"""

import csv
import dataclasses
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpssl.class_prior import class_prior
from dpssl.config import LabelModelConfig
from dpssl.constants import UNLABELED
from dpssl.disk import replacing
from dpssl.errors import InputError
from dpssl.label_model import VARIANTS, LabelModel, VoteTable, confidence_for, covered, read_votes
from dpssl.label_model.given_votes import count_classes
from dpssl.label_model.votes import chunks
from dpssl.named_classes import MOST_CLASSES
from dpssl.run_folder import SOFT_LABELS, SOFT_LABELS_TABLE, SPLIT, RunFolder
from dpssl.step_files import SoftLabelFile, soft_label_table, string_array
from dpssl.vote_rows import RowIds


def label_vote_file(source: str, labels: str | None, out: str | None, settings: LabelModelConfig) -> None:
    """Fit on the votes in `source`, print the table of labeling functions, write the soft labels to a new folder."""
    variant = settings.label_model
    if variant not in VARIANTS:
        raise InputError(f"--label-model {variant!r}: choose one of {', '.join(VARIANTS)}")
    table = read_votes(source)
    ids = RowIds(source, table)
    y = _read_labels(labels, ids, table.class_names) if labels else None
    n_classes = _count_classes(source, table, y)
    known = np.full(0, UNLABELED) if y is None else y
    balance = class_prior(settings.class_prior, known, n_classes)
    confidence = confidence_for(variant, table.confidence) if settings.use_confidence else None
    folder = RunFolder.create(out)  # before the minutes that a fit may take
    model = LabelModel(n_classes, variant)
    try:
        model.fit(dataclasses.replace(table, confidence=confidence), y, class_balance=balance)
    except InputError as problem:
        raise InputError(f"{source}: {problem}") from None
    model.save(folder.path("label_model.safetensors"))
    class_names = tuple(table.class_names or map(str, range(n_classes)))
    if y is not None:  # they stand in every export
        given = {str(ids[row : row + 1][0]): int(y[row]) for row in np.flatnonzero(y != UNLABELED).tolist()}
        folder.write_json(SPLIT, {"labeled": given})
    n_covered = _write_soft_labels(folder, model, table.votes, confidence, ids, class_names)
    print(model.lf_summary())
    share = 100 * n_covered / ids.n_rows
    print(f"\n{ids.n_rows:,} rows, {n_classes} classes, model {variant}; {share:.2f} % covered")
    print(f"Soft labels: {folder.path(SOFT_LABELS_TABLE)}")


def _count_classes(source: str, table: VoteTable, y: NDArray[np.int64] | None) -> int:
    if table.votes.dtype.kind not in "iuf":
        raise InputError(f"{source}: votes have type {table.votes.dtype}; give class numbers, with -1 for abstain")
    try:
        n_classes = count_classes(table, y)
    except InputError as problem:
        raise InputError(f"{source}: {problem}") from None
    if n_classes < 2:
        raise InputError(f"{source}: the votes name fewer than two classes; there is nothing to resolve")
    return n_classes


def _read_labels(path: str, ids: RowIds, class_names: list[str] | None) -> NDArray[np.int64]:
    """Known labels, (n,): a CSV with the columns id and label, for any of the rows.

    A label is a class name, where the file of votes holds those, or else a class number; empty or -1 is no label.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"--labels {path}: cannot be read as a CSV file ({problem})") from None
    y = np.full(ids.n_rows, UNLABELED, dtype=np.int64)
    for line, entry in _entries(path, text):
        where = f"--labels {path}, line {line}"
        id, label = entry["id"], entry["label"]
        if id is None or label is None:
            raise InputError(f"{where}: fewer cells than the first line has")
        row = ids.row_of(id)
        if row is None:
            raise InputError(f"{where}: no row of the votes has the id {id!r}")
        number = _class_number(label.strip(), class_names, where)
        if number != UNLABELED and y[row] not in (UNLABELED, number):
            raise InputError(f"{where}: {id!r} has another label further up; keep one of them")
        y[row] = number
    return y


def _entries(path: str, text: str) -> Iterator[tuple[int, dict[str, str | None]]]:
    """The last line and the cells of each row."""
    lines = csv.DictReader(io.StringIO(text, newline=""))
    read = 0
    try:
        if not {"id", "label"} <= set(lines.fieldnames or ()):
            raise InputError(f"--labels {path}: needs the columns id and label; the first line has {lines.fieldnames}")
        read = lines.line_num
        for entry in lines:
            read = lines.line_num
            yield read, entry
    except csv.Error as problem:  # the row begins below the last that was read; it may end thousands of lines on
        raise InputError(f"--labels {path}, line {read + 1}: {problem}; is a quote left open there?") from None


def _class_number(label: str, class_names: list[str] | None, where: str) -> int:
    if class_names is not None and label in class_names:
        return class_names.index(label)
    if label in ("", str(UNLABELED)):
        return UNLABELED
    n_classes = MOST_CLASSES + 1 if class_names is None else len(class_names)
    if not (label.isascii() and label.removeprefix("-").isdecimal()):
        known = "" if class_names is None else f", and the classes are {', '.join(class_names[:20])}"
        raise InputError(f"{where}: {label!r} is no class number{known}; use 0, 1, 2, …")
    if not 0 <= int(label) < n_classes:
        raise InputError(f"{where}: label {label} is outside the range; classes are 0 to {n_classes - 1}")
    return int(label)


def _write_soft_labels(
    folder: RunFolder,
    model: LabelModel,
    votes: NDArray[Any],
    confidence: NDArray[Any] | None,
    ids: RowIds,
    class_names: tuple[str, ...],
) -> int:
    """Write `soft_labels.csv` and `.npz` with the bytes of `RunFolder.write_soft_labels`; count the covered rows."""
    n_classes = len(class_names)
    has_votes = np.empty(ids.n_rows, dtype=np.bool_)
    parts = list(chunks(ids.n_rows, max(votes.shape[1], n_classes)))
    with (
        replacing(folder.path(SOFT_LABELS_TABLE)) as csv_file,
        replacing(folder.path(SOFT_LABELS)) as npz_file,
        zipfile.ZipFile(npz_file, "w") as archive,
    ):
        with _npy_member(archive, "soft_labels", (ids.n_rows, n_classes), np.dtype(np.float32)) as member:
            for rows in parts:
                proba = model.predict_proba(votes[rows], None if confidence is None else confidence[rows])
                has_votes[rows] = covered(votes[rows])
                part = SoftLabelFile(ids[rows], class_names, proba.astype(np.float32), has_votes[rows])
                member.write(part.soft_labels.tobytes())
                lines = soft_label_table(part)
                csv_file.write((lines if rows.start == 0 else lines.partition("\n")[2]).encode())
        with _npy_member(archive, "covered", has_votes.shape, has_votes.dtype) as member:
            member.write(has_votes.tobytes())
        with _npy_member(archive, "ids", (ids.n_rows,), ids.dtype) as member:
            for rows in parts:
                member.write(ids[rows].tobytes())
        names = string_array(class_names)
        with _npy_member(archive, "class_names", names.shape, names.dtype) as member:
            member.write(names.tobytes())
    return int(has_votes.sum())


@contextmanager
def _npy_member(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Iterator[IO[bytes]]:
    """One array of an .npz whose bytes come piece by piece."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(member, header)
        yield member

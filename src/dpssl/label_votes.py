"""`dpssl label VOTES`: the label model on votes from anywhere. No image code and no network is imported."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import UNLABELED
from dpssl.errors import InputError
from dpssl.label_model import DEFAULT_VARIANT, VARIANTS, LabelModel, VoteTable, covered, read_votes
from dpssl.run_folder import RunFolder


def label_vote_file(source: str, labels: str | None, out: str | None, variant: str | None) -> None:
    """Fit on the votes in `source`, print the table of labeling functions, write the soft labels to a new folder."""
    table = read_votes(source)
    ids = _row_ids(table)
    y = _read_labels(labels, ids) if labels else None
    n_classes = _count_classes(table, y)
    model = LabelModel(n_classes, variant or DEFAULT_VARIANT)
    if model.variant not in VARIANTS:
        raise InputError(f"--label-model {model.variant!r}: choose one of {', '.join(VARIANTS)}")
    confidence = table.confidence if VARIANTS[model.variant].uses_confidence else None
    folder = RunFolder.create(out)  # before the minutes that a fit may take
    model.fit(table.votes, y, confidence=confidence, specialties=table.specialties)
    soft_labels = model.predict_proba(table.votes, confidence)
    model.save(folder.path("label_model.safetensors"))
    names = table.class_names or [str(label) for label in range(n_classes)]
    folder.write_soft_labels(ids, names, soft_labels, covered(table.votes))
    print(model.lf_summary())
    share = 100 * covered(table.votes).mean()
    print(f"\n{len(ids):,} rows, {n_classes} classes, model {model.variant}; {share:.2f} % covered")
    print(f"Soft labels: {folder.path('soft_labels.csv')}")


def _row_ids(table: VoteTable) -> NDArray[Any]:
    return np.arange(len(table.votes)).astype(str) if table.ids is None else np.asarray(table.ids).astype(str)


def _count_classes(table: VoteTable, y: NDArray[np.int64] | None) -> int:
    if table.class_names is not None:
        return len(table.class_names)
    if table.specialties is not None:
        return int(table.specialties.shape[1])
    highest = max(
        int(np.max(table.votes, initial=UNLABELED)), int(np.max(y, initial=UNLABELED)) if y is not None else -1
    )
    if highest < 1:
        raise InputError("the votes name fewer than two classes; there is nothing to resolve")
    return highest + 1


def _read_labels(path: str, ids: NDArray[Any]) -> NDArray[np.int64]:
    """Known labels: a CSV with the columns id and label (a class number), for any subset of the rows."""
    row_of = {str(id): row for row, id in enumerate(ids)}
    y = np.full(len(ids), UNLABELED, dtype=np.int64)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"--labels {path}: cannot be read as a CSV file ({problem})") from None
    for line, entry in enumerate(csv.DictReader(io.StringIO(text, newline="")), start=2):
        id, label = entry.get("id"), entry.get("label")
        if id is None or label is None:
            raise InputError(f"--labels {path}, line {line}: needs the columns id and label")
        if id not in row_of:
            raise InputError(f"--labels {path}, line {line}: no row of the votes has the id {id!r}")
        if not label.strip().removeprefix("-").isdecimal():
            raise InputError(f"--labels {path}, line {line}: {label!r} is no class number; use 0, 1, 2, …")
        y[row_of[id]] = int(label)
    return y

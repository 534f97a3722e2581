"""Labels as a table: CSV for spreadsheets and scripts, Parquet with exact values, JSON for programs.

Columns: id, label (empty where none is), confidence, covered, source, and the probability of each class as `p_NAME`.
"""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dpssl.constants import UNLABELED
from dpssl.errors import InputError
from dpssl.export.labels import LabelRows
from dpssl.export.names import printable_names
from dpssl.step_files import spreadsheet_text


def write_csv(rows: LabelRows, path: Path) -> None:
    """Text that a spreadsheet would run as a formula has an apostrophe before it, as in soft_labels.csv."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(csv_lines(rows))


def csv_lines(rows: LabelRows) -> Iterator[list[str]]:
    """The cells of each line, the column names first."""
    optional = {name: column for name, column in _optional(rows).items() if column is not None}
    probabilities = [f"p_{name}" for name in printable_names(rows.class_names)]
    yield ["id", "label", "confidence", *optional, *probabilities]
    names = [spreadsheet_text(writable(name)) for name in rows.class_names]
    for row, (id, label, confidence) in enumerate(zip(rows.ids.tolist(), rows.labels, rows.confidence, strict=True)):
        yield [
            spreadsheet_text(writable(id)),
            names[label] if label != UNLABELED else "",
            f"{confidence:.6f}",
            *(str(column[row]) for column in optional.values()),
            *(f"{value:.6f}" for value in rows.probabilities[row].tolist()),
        ]


def write_parquet(rows: LabelRows, path: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as problem:
        raise InputError("Parquet needs pyarrow: pip install 'dpssl[parquet]'") from problem
    names = [writable(name) for name in rows.class_names]
    columns: dict[str, Any] = {
        "id": pa.array([writable(id) for id in rows.ids.tolist()], pa.string()),
        "label": pa.array([names[label] if label != UNLABELED else None for label in rows.labels], pa.string()),
        "confidence": pa.array(rows.confidence, pa.float32()),
    }
    columns |= {name: pa.array(column) for name, column in _optional(rows).items() if column is not None}
    columns |= {
        f"p_{name}": pa.array(rows.probabilities[:, c], pa.float32())
        for c, name in enumerate(printable_names(rows.class_names))
    }
    parquet.write_table(pa.Table.from_arrays(list(columns.values()), names=list(columns)), path)


def write_json(rows: LabelRows, path: Path) -> None:
    """A list of objects, one a line, with the probabilities as an object by class name."""
    write_json_lines(path, (_record(rows, row) for row in range(len(rows))))


def write_json_lines(path: Path, records: Iterator[dict[str, Any]]) -> None:
    """A JSON list written record by record: it may be larger than memory."""
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, record in enumerate(records):
            file.write(",\n" if number else "\n")
            json.dump(record, file, allow_nan=False)
        file.write("\n]\n")


def writer_for(path: Path) -> Callable[[LabelRows, Path], None]:
    """What writes the format that the file's ending names."""
    writers = {".csv": write_csv, ".parquet": write_parquet, ".json": write_json}
    if path.suffix.lower() not in writers:
        raise InputError(f"--out {path}: the ending says the format; choose one of {', '.join(writers)}")
    return writers[path.suffix.lower()]


def writable(text: str) -> str:
    """`text`, or where it holds halves of a character, which no file can store, a question mark for each."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _record(rows: LabelRows, row: int) -> dict[str, Any]:
    probabilities = (round(value, 6) for value in rows.probabilities[row].tolist())
    return {
        "id": str(rows.ids[row]),
        "label": rows.label_of(row),
        "confidence": round(float(rows.confidence[row]), 6),
        "probabilities": dict(zip(rows.class_names, probabilities, strict=True)),
    }


def _optional(rows: LabelRows) -> dict[str, Any]:
    return {"covered": rows.covered, "source": rows.source}

"""CSV as pandas, a spreadsheet and csv read it; Parquet as pandas and pyarrow do; JSON."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest

from dpssl.errors import InputError
from dpssl.export.labels import LabelRows
from dpssl.export.names import printable_names
from dpssl.export.tables import write_csv, write_json, write_parquet, writer_for


def test_csv_holds_every_row_and_no_formula(rows: LabelRows, tmp_path: Path) -> None:
    write_csv(rows, tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    assert lines[0][:5] == ["id", "label", "confidence", "covered", "source"]
    assert len(lines[0]) == 5 + len(rows.class_names)
    assert len(lines) == 1 + len(rows)
    for line in lines:
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in line)
    shown = [line[0].removeprefix("'") for line in lines[1:]]
    assert shown == [id.replace("\ud800", "?") for id in rows.ids.tolist()]
    values = np.array([line[5:] for line in lines[1:]], dtype=float)
    np.testing.assert_allclose(values, rows.probabilities, atol=1e-6)


def test_csv_in_pandas(rows: LabelRows, tmp_path: Path) -> None:
    write_csv(rows, tmp_path / "labels.csv")
    table = pd.read_csv(tmp_path / "labels.csv", index_col="id")
    assert len(table) == len(rows)
    assert table.label.isna().sum() == 1
    assert not table.covered.iloc[3]
    assert table.source.iloc[5] == "given"
    np.testing.assert_allclose(table["p_cat"], rows.probabilities[:, 0], atol=1e-6)


def test_parquet_in_pandas_and_pyarrow_is_exact(rows: LabelRows, tmp_path: Path) -> None:
    write_parquet(rows, tmp_path / "labels.parquet")
    table = pd.read_parquet(tmp_path / "labels.parquet")
    assert table.id.tolist() == [id.replace("\ud800", "?") for id in rows.ids.tolist()]
    labels = parquet.read_table(tmp_path / "labels.parquet").column("label").to_pylist()
    assert labels == [rows.label_of(row) for row in range(len(rows))]
    columns = [f"p_{name}" for name in printable_names(rows.class_names)]
    np.testing.assert_array_equal(table[columns].to_numpy(), rows.probabilities)
    np.testing.assert_array_equal(table.covered, rows.covered)


def test_json(rows: LabelRows, tmp_path: Path) -> None:
    write_json(rows, tmp_path / "labels.json")
    records = json.loads((tmp_path / "labels.json").read_text(encoding="utf-8"))
    assert [record["id"] for record in records] == rows.ids.tolist()
    assert records[3]["label"] is None
    assert records[1]["probabilities"].keys() == set(rows.class_names)
    write_json(rows.take(np.zeros(len(rows), bool)), tmp_path / "none.json")
    assert json.loads((tmp_path / "none.json").read_text()) == []


def test_the_ending_says_the_format() -> None:
    assert writer_for(Path("x.CSV")) is write_csv
    with pytest.raises(InputError, match=r"--out x\.xlsx: the ending says the format"):
        writer_for(Path("x.xlsx"))


def test_parquet_without_pyarrow_says_what_to_install(
    rows: LabelRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'dpssl\[parquet\]'"):
        write_parquet(rows, tmp_path / "labels.parquet")

"""Reading votes from files, by class number or by class name."""

import pickle

import numpy as np
import pandas as pd
import pytest

from dpssl.errors import InputError
from dpssl.label_model import vote_files
from dpssl.label_model.vote_files import read_votes

VOTES = np.array([[0, 1, -1], [1, 1, 0], [-1, -1, -1]], dtype=np.int8)


def test_a_run_folders_npz(tmp_path):
    path = tmp_path / "votes.npz"
    np.savez(
        path,
        votes=VOTES,
        confidence=np.full(VOTES.shape, 0.5, dtype=np.float16),
        specialties=np.ones((3, 2), dtype=bool),
        ids=np.array(["a.png", "b.png", "c.png"]),
        class_names=np.array(["cat", "dog"]),
        y=np.array([0, -1, -1], dtype=np.int16),
    )
    table = read_votes(path)
    np.testing.assert_array_equal(table.votes, VOTES)
    assert table.confidence.dtype == np.float16
    assert table.specialties.shape == (3, 2)
    assert table.ids.tolist() == ["a.png", "b.png", "c.png"]
    assert table.class_names == ["cat", "dog"]
    assert table.y.tolist() == [0, -1, -1]


def test_snorkels_name_and_nothing_beside(tmp_path):
    np.savez(tmp_path / "x.npz", L=VOTES)
    table = read_votes(tmp_path / "x.npz")
    np.testing.assert_array_equal(table.votes, VOTES)
    assert table.confidence is table.specialties is table.ids is table.class_names is table.y is None


def test_npy_is_memory_mapped(tmp_path):
    np.save(tmp_path / "x.npy", VOTES)
    assert isinstance(read_votes(tmp_path / "x.npy").votes, np.memmap)


def test_a_csv_file_is_read_in_blocks(tmp_path, monkeypatch):
    """Ids of any length, empty and blank cells, and the line of a bad cell beyond the first block."""
    monkeypatch.setattr(vote_files, "CSV_ROWS", 2)
    path = tmp_path / "votes.csv"
    path.write_text("id,a,y,b\nx,0,1,\ny,1,, 2 \nlonger,  ,-1,1.0\nz,nan,0,3\nlast,2,1,-1\n")
    table = read_votes(path)
    np.testing.assert_array_equal(table.votes, [[0, -1], [1, 2], [-1, 1], [-1, 3], [2, -1]])
    assert table.votes.dtype == np.int16
    assert table.ids.tolist() == ["x", "y", "longer", "z", "last"]
    assert table.y.tolist() == [1, -1, -1, 0, 1]
    assert table.lf_names == ["a", "b"]
    path.write_text("a,b\n" + "0,1\n" * 4 + "0,cat\n")
    with pytest.raises(InputError, match="line 6, column 'b': cat is not a class number"):
        read_votes(path)
    path.write_text("a,b\n" + "0,1\n" * 3 + "0\n")
    with pytest.raises(InputError, match="line 5: 1 cells, but the header has 2"):
        read_votes(path)


def test_csv(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text("id,keyword,regex,y\n7,0,,1\n8, 1 ,-1,\n9,,2.0,-1\n")
    table = read_votes(path)
    assert table.votes.tolist() == [[0, -1], [1, -1], [-1, 2]]
    assert table.ids.tolist() == ["7", "8", "9"]
    assert table.y.tolist() == [1, -1, -1]
    assert table.lf_names == ["keyword", "regex"]


def test_parquet_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(vote_files, "PARQUET_ROWS", 2)
    frame = pd.DataFrame({"id": ["a", "b", "c"], "lf0": [0, 1, -1], "lf1": [1.0, None, 2.0], "label": [0, -1, 1]})
    frame.to_parquet(tmp_path / "votes.parquet")
    table = read_votes(tmp_path / "votes.parquet")
    assert table.votes.tolist() == [[0, 1], [1, -1], [-1, 2]]
    assert table.ids.tolist() == ["a", "b", "c"]
    assert table.y.tolist() == [0, -1, 1]


def test_parquet_nulls_and_small_integers(tmp_path):
    frame = pd.DataFrame({"a": pd.array([0, None], dtype="Int8"), "b": pd.array([1, 1], dtype="Int8")})
    frame.to_parquet(tmp_path / "votes.parquet")
    table = read_votes(tmp_path / "votes.parquet")
    assert table.votes.dtype == np.int8
    assert table.votes.tolist() == [[0, 1], [-1, 1]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.npz", b"PK\x03\x04 broken", "x.npz: damaged or not a plain .npz file"),
        ("x.npz", b"", "x.npz: damaged"),
        ("x.npy", b"\x93NUMPY", "x.npy: damaged"),
        ("x.parquet", b"PAR1", "x.parquet: damaged or not a Parquet file"),
        ("x.csv", b"a,b\n", "x.csv: no rows of votes below the header"),
        ("x.csv", b"a,b\n0,1\n0\n", "x.csv, line 3: 1 cells, but the header has 2"),
        ("x.csv", b"a,b\n0,1\n0,cat\n", "x.csv, line 3, column 'b': cat is not a class number"),
        ("x.csv", b"a,b\n0.5,1\n", "x.csv, line 2, column 'a': 0.5 is not a class number"),
        ("x.csv", b"id,y\n1,0\n", "x.csv: no column or no row of votes"),
        ("x.csv", b"\xff\xfe\x00", "x.csv: not a readable CSV file"),
        ("x.pkl", b"", "x.pkl: cannot read votes from a file of this kind; give a .npz, .npy, .csv or .parquet"),
    ],
)
def test_damaged_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_votes(tmp_path / name)


def test_missing_file_and_missing_array(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_votes(tmp_path / "nothing.npz")
    np.savez(tmp_path / "x.npz", labels=VOTES)
    with pytest.raises(InputError, match=r"no array `votes` or `L` \(found: labels\)"):
        read_votes(tmp_path / "x.npz")


def test_pickles_are_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    for name in ("x.npz", "x.npy"):
        trap = np.array([[Trap()]], dtype=object)
        (np.savez if name == "x.npz" else np.save)(tmp_path / name, trap)
        with pytest.raises(InputError, match="damaged or not a plain"):
            read_votes(tmp_path / name)
    (tmp_path / "y.npz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match="damaged"):
        read_votes(tmp_path / "y.npz")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_columns_are_separated_by_what_the_header_has(tmp_path, separator):
    (tmp_path / "x.csv").write_text("id,a,b\nx,0,1\ny,,1\n".replace(",", separator))
    table = read_votes(tmp_path / "x.csv")
    assert table.votes.tolist() == [[0, 1], [-1, 1]]
    assert table.ids.tolist() == ["x", "y"]


def test_names_become_numbers_in_alphabetical_order(tmp_path, monkeypatch):
    """Whatever the order of their appearance, over blocks and columns, those of the label column among them."""
    monkeypatch.setattr(vote_files, "CSV_ROWS", 2)
    path = tmp_path / "votes.csv"
    path.write_text("id,rule,model,y\na,owl,,dog\nb, cat ,owl,\nc,dog,-1,cat\nd,,nan,bee\n")
    table = read_votes(path)
    assert table.class_names == ["bee", "cat", "dog", "owl"]
    assert table.votes.tolist() == [[3, -1], [1, 3], [2, -1], [-1, -1]]
    assert table.y.tolist() == [2, -1, 1, 0]
    frame = pd.read_csv(path, skipinitialspace=True, na_values=["-1"]).map(
        lambda cell: cell.strip() if isinstance(cell, str) else cell
    )
    for kind in (str, "category"):
        frame.astype({"rule": kind, "model": kind}, errors="ignore").replace("nan", None).to_parquet(
            tmp_path / "votes.parquet"
        )
        again = read_votes(tmp_path / "votes.parquet")
        assert again.class_names == table.class_names
        np.testing.assert_array_equal(again.votes, table.votes)
        np.testing.assert_array_equal(again.y, table.y)


def test_names_in_arrays(tmp_path):
    np.savez(tmp_path / "x.npz", votes=np.array([["b", ""], ["a", "b"]]), y=np.array(["a", ""]))
    table = read_votes(tmp_path / "x.npz")
    assert table.class_names == ["a", "b"]
    assert table.votes.tolist() == [[1, -1], [0, 1]]
    assert table.y.tolist() == [0, -1]
    np.savez(tmp_path / "x.npz", votes=np.array([["b", ""], ["a", "b"]]), class_names=np.array(["c", "b", "a"]))
    table = read_votes(tmp_path / "x.npz")
    assert table.class_names == ["c", "b", "a"], "the file's own order"
    assert table.votes.tolist() == [[1, -1], [2, 1]]
    np.savez(tmp_path / "x.npz", votes=np.array([["b", ""], ["d", "b"]]), class_names=np.array(["c", "b", "a"]))
    with pytest.raises(InputError, match=r"x.npz: row 1: 'd' is no class; the classes are c, b, a"):
        read_votes(tmp_path / "x.npz")


def test_numbers_and_names_are_not_mixed(tmp_path):
    """A slip of the pen in one cell must not make names of all numbers."""
    path = tmp_path / "x.csv"
    for text, message in (
        ("a,b\n0,1\n1,l\n", "line 3, column 'b': l is not a class number, but 0 in .*line 2, column 'a' is"),
        ("a,b\ncat,dog\n,3\n", "line 2, column 'a': cat is not a class number, but 3 in .*line 3, column 'b' is"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_votes(path)


def test_a_column_of_texts_is_no_column_of_votes(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("text,rule\n" + "".join(f"sentence {row},{'spam' if row % 2 else 'ham'}\n" for row in range(30)))
    with pytest.raises(InputError, match="column 'text': 30 different entries in 30 rows; is it one of votes"):
        read_votes(path)
    path.write_text("id,rule\n" + "".join(f"sentence {row},class-{row % 15}\n" for row in range(30)))
    assert len(read_votes(path).class_names) == 15, "half as many classes as rows may be"

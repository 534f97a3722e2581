"""Ids of the rows of a file of votes, and tables with one vote a line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpssl.errors import InputError
from dpssl.label_model import VoteTable, read_votes
from dpssl.vote_rows import RowIds, refuse_long_format

VOTES = np.zeros((4, 2), dtype=np.int8)
LONG = pd.DataFrame(
    {"task": ["a", "a", "b", "b"], "worker": ["Ada", "Bob", "Ada", "Eve"], "label": [1, 0, 0, 2]}
)  # fmt: skip


def test_an_id_names_its_row() -> None:
    named = RowIds("votes.npz", VoteTable(VOTES, ids=np.array(["d", "c", "b", "a"])))
    assert [named.row_of(id) for id in ("d", "a", "3", "e")] == [0, 3, None, None]
    assert named[slice(1, 3)].tolist() == ["c", "b"]
    numbered = RowIds("votes.npz", VoteTable(VOTES))
    assert [numbered.row_of(id) for id in ("0", "3", "4", "-1", "d")] == [0, 3, None, None, None]
    assert numbered[slice(1, 3)].tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("source", "places"),
    [("votes.npz", "rows 1, 2, 3"), ("votes.parquet", "rows 1, 2, 3"), ("votes.csv", "lines 3, 4, 5")],
)
def test_an_id_that_repeats_is_named_with_its_rows(source: str, places: str) -> None:
    for ids in (np.array(["a", "b", "b", "b"]), np.array([1, 7, 7, 7])):
        with pytest.raises(InputError) as refused:
            RowIds(source, VoteTable(VOTES, ids=ids))
        assert f"{source}: the id {str(ids[1])!r} is that of 3 rows ({places}), but has to name one" in str(
            refused.value
        )
        assert "give each row an id of its own" in str(refused.value)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    "names", [("task", "worker", "label"), ("item_id", "Annotator", "answer"), ("id", "user", "y")]
)
def test_one_vote_a_line_is_refused_with_a_line_of_pandas_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, names: tuple[str, str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table = LONG.set_axis(list(names), axis=1)
    table.to_csv("votes.csv", index=False) if ending == "csv" else table.to_parquet("votes.parquet")
    with pytest.raises(InputError, match="one vote a line") as refused:
        refuse_long_format(f"votes.{ending}")
    exec(str(refused.value).partition("is needed: ")[2], {"pandas": pd})
    refuse_long_format("wide.csv")
    wide = read_votes("wide.csv")
    assert wide.ids is not None
    assert wide.ids.tolist() == ["a", "b"]
    assert wide.lf_names == ["Ada", "Bob", "Eve"]
    assert wide.votes.tolist() == [[1, 0, -1], [0, -1, 2]]


def test_with_more_columns_repeated_ids_tell_of_it(tmp_path: Path) -> None:
    """A labeling function may be called `user`."""
    path = tmp_path / "votes.csv"
    path.write_text("id,label,user,pattern\na,,1,1\nb,,0,1\n")
    refuse_long_format(str(path))
    RowIds(str(path), read_votes(path))
    path.write_text("id,label,user,seconds\na,1,7,1\na,0,8,1\n")
    refuse_long_format(str(path))
    with pytest.raises(
        InputError, match=r"'a' is that of 2 rows \(lines 2, 3\).* one vote a line, where .*columns='user'"
    ):
        RowIds(str(path), read_votes(path))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe,b\n", b"a;b\n1;2\n"])
def test_what_is_no_table_is_left_to_its_reader(tmp_path: Path, content: bytes) -> None:
    for name in ("votes.csv", "votes.parquet", "votes.npz"):
        (tmp_path / name).write_bytes(content)
        refuse_long_format(str(tmp_path / name))
    refuse_long_format(str(tmp_path / "nothing.csv"))

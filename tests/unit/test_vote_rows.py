"""Ids of the rows of a file of votes."""

import numpy as np
import pytest

from dpssl.errors import InputError
from dpssl.label_model import VoteTable
from dpssl.vote_rows import RowIds

VOTES = np.zeros((4, 2), dtype=np.int8)


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

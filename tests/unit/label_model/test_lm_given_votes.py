"""Votes as a user has them: columns by name, classes by the order that is given, frames of every kind."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dpssl import LabelModel
from dpssl.errors import InputError
from dpssl.label_model import VoteTable, read_votes
from dpssl.label_model.given_votes import as_vote_table, count_classes

FRAME = pd.DataFrame({"rule": ["cat", "dog", None, "cat"], "crowd": ["cat", "dog", "dog", "dog"], "bot": ["dog"] * 4})


@pytest.fixture
def fitted():
    return LabelModel(variant="dawid-skene").fit(FRAME)


def test_columns_are_found_by_name(fitted, tmp_path):
    expected = fitted.predict_proba(FRAME)
    turned = FRAME[["bot", "rule", "crowd"]]
    turned.to_csv(tmp_path / "turned.csv", index=False)
    fitted.save(tmp_path / "model.safetensors")
    for model in (fitted, LabelModel.load(tmp_path / "model.safetensors")):
        np.testing.assert_array_equal(model.predict_proba(turned), expected)
        np.testing.assert_array_equal(model.predict_proba(tmp_path / "turned.csv"), expected)
        np.testing.assert_array_equal(model.predict_proba(FRAME.to_numpy()), expected, "an array's columns have none")


@pytest.mark.parametrize("other", [FRAME.rename(columns={"bot": "robot"}), FRAME[["rule", "crowd"]]])
def test_other_columns_are_refused(fitted, other):
    with pytest.raises(InputError, match=r"missing \['bot'\], unknown \[.*\]; give the same columns, in any order"):
        fitted.predict(other)


def test_what_comes_beside_a_column_moves_with_it():
    table = VoteTable(
        np.array([[0, 1]]), np.array([[0.25, 0.5]]), specialties=np.array([[True, False], [True, True]])
    ).with_columns(["a", "b"])
    assert table.votes.tolist() == [[0, 1]], "columns without names stay where they are"
    named = VoteTable(
        table.votes, table.confidence, np.array([[True, False], [True, True]]), lf_names=["b", "a"]
    ).with_columns(["a", "b"])
    assert named.votes.tolist() == [[1, 0]]
    assert named.confidence.tolist() == [[0.5, 0.25]]
    assert named.specialties.tolist() == [[True, True], [True, False]]


def test_parts_with_their_columns_in_another_order():
    whole = LabelModel(variant="dawid-skene", class_names=["cat", "dog"]).fit(FRAME)
    parts = LabelModel(variant="dawid-skene", class_names=["cat", "dog"])
    parts.partial_fit(FRAME[:2]).partial_fit(FRAME[2:][["crowd", "bot", "rule"]])
    np.testing.assert_allclose(parts.predict_proba(FRAME), whole.predict_proba(FRAME), atol=1e-9)


def test_everything_by_class_moves_with_the_classes(tmp_path):
    """A file's own order of classes is not the caller's: votes, labels, specialties and probabilities go along."""
    np.savez(
        tmp_path / "x.npz",
        votes=np.array([[0, 1], [1, -1]]),
        specialties=np.array([[True, True], [False, True]]),
        confidence=np.array([[[0.9, 0.1, 0.0], [0.2, 0.7, 0.1]]] * 2),
        class_names=np.array(["owl", "cat"]),
        y=np.array([0, -1]),
    )
    seen = {}

    class Seen(LabelModel):
        def _count_classes(self, table, y, names, class_balance):
            seen.update(table=table, names=names)
            return super()._count_classes(table, y, names, class_balance)

    Seen(variant="majority", class_names=["cat", "dog", "owl"]).fit(tmp_path / "x.npz")
    assert seen["names"] == ["cat", "dog", "owl"]
    assert seen["table"].votes.tolist() == [[2, 0], [0, -1]]
    assert seen["table"].y.tolist() == [2, -1]
    assert seen["table"].specialties.tolist() == [[True, False, True], [True, False, False]]
    assert seen["table"].confidence[0].tolist() == [[0.1, 0.0, 0.9, 0.0], [0.7, 0.0, 0.2, 0.1]]
    with pytest.raises(InputError, match="votes: 'owl' is no class; the classes are cat, dog"):
        LabelModel(class_names=["cat", "dog"]).fit(tmp_path / "x.npz")


@pytest.mark.parametrize("bad", [3, -2, 0.5])
def test_a_number_of_no_class_is_not_read_as_that_of_another(bad):
    votes = VoteTable(np.array([[0, 1], [bad, 2]]), class_names=["c", "b", "a"])
    with pytest.raises(InputError, match="votes, row 1: "):
        LabelModel(class_names=["a", "b", "c"]).fit(votes)


def test_few_rows_of_many_classes_are_not_taken_for_texts():
    names = [f"class {number:02}" for number in range(15)]
    frame = pd.DataFrame({"rule": names * 3, "bot": names * 3})
    model = LabelModel(variant="majority").fit(frame)
    assert model.predict(frame[:15]).tolist() == names
    with pytest.raises(InputError, match="votes, column 'rule': 15 different entries in 15 rows; is it one of votes"):
        LabelModel(variant="majority").fit(frame[:15])


def test_a_frame_stays_as_it_is_and_has_no_names_where_pandas_counts():
    frame = pd.DataFrame(np.array([[0.0, np.nan], [1.0, 1.0]]))
    table = as_vote_table(frame)
    assert table.votes.tolist() == [[0, -1], [1, 1]]
    assert table.lf_names is None
    assert np.isnan(frame.iloc[0, 1])


def test_a_frame_of_truth_values_is_refused():
    """False may be class 0, or a rule that did not fire."""
    with pytest.raises(InputError, match="votes, row 0, column 'rule': True is no class"):
        LabelModel(2).fit(pd.DataFrame({"rule": [True, False], "bot": [0, 1]}))


def test_a_frame_of_answers():
    frame = pd.DataFrame({"task": [7, 7, 9], "worker": ["anna", "ben", "ben"], "label": ["cat", "dog", None]})
    table = as_vote_table(frame)
    assert table.ids.tolist() == ["7", "9"]
    assert table.lf_names == ["anna", "ben"]
    assert table.votes.tolist() == [[0, 1], [-1, -1]]
    with pytest.raises(InputError, match="votes, row 1: names no item; fill the cell, or take the line out"):
        as_vote_table(frame.assign(task=[7, None, 9]))
    with pytest.raises(InputError, match="votes, row 2: does not say whose it is"):
        as_vote_table(frame.assign(worker=["anna", "ben", ""]))


def test_the_index_that_pandas_writes_is_no_column_of_votes(tmp_path):
    votes = pd.DataFrame({" Id ": ["a", "b"], "rule": [0, 1], "bot": [1, 1]})
    votes.to_csv(tmp_path / "votes.csv")
    votes.reset_index().to_parquet(tmp_path / "votes.parquet")
    for table in (read_votes(tmp_path / "votes.csv"), read_votes(tmp_path / "votes.parquet"), as_vote_table(votes)):
        assert table.lf_names == ["rule", "bot"]
        assert table.votes.tolist() == [[0, 1], [1, 1]]
    assert read_votes(tmp_path / "votes.csv").ids.tolist() == ["a", "b"]


def test_rows_of_unequal_length():
    with pytest.raises(InputError, match="votes are no matrix"):
        LabelModel(2).fit([[0, 1], [0]])


def test_a_mistyped_number_does_not_make_a_million_classes():
    with pytest.raises(InputError, match=r"names class 1e\+06; those that are counted go up to 32766"):
        count_classes(as_vote_table([[0, 10**6]]), None)
    assert count_classes(as_vote_table([[0.0, np.nan]]), np.array([2.0, np.nan])) == 3


def test_a_table_by_hand_may_hold_lists_or_a_sparse_matrix():
    """A stored 0 is the vote for class 0; the classes stand in another order than the caller's."""
    lists = VoteTable([[0, -1], [1, 1]], specialties=[[True, True], [False, True]], class_names=["b", "a"])
    entries = ([0, 1, 1], ([0, 1, 1], [0, 0, 1]))
    sparse = VoteTable(scipy.sparse.coo_matrix(entries, shape=(2, 2)), class_names=["b", "a"], lf_names=["x", "y"])
    for table in (lists, sparse):
        model = LabelModel(variant="majority", class_names=["a", "b"]).fit(table)
        assert model.predict(table).tolist() == ["b", "a"]
    turned = VoteTable([["", "b"], ["a", "a"]], lf_names=["y", "x"])
    np.testing.assert_array_equal(model.predict_proba(turned), model.predict_proba(sparse))

"""Class names in the place of class numbers: a model of names is the model of their numbers."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dpssl import LabelModel
from dpssl.errors import InputError
from dpssl.label_model import VARIANTS, pivot_answers, read_votes, tally_votes
from dpssl.label_model.checks import check_votes

NAMES = np.array(["cat", "dog", "eel", "owl", ""])  # the last is that of -1


@pytest.fixture
def named(world):
    """The votes and some labels of a world of four classes, by name."""
    y = np.where(np.arange(len(world.votes)) % 10 == 0, world.y, -1)
    return NAMES[world.votes], NAMES[y], y


@pytest.mark.parametrize("variant", VARIANTS)
def test_names_change_nothing_but_names(variant, world, named):
    votes, labels, y = named
    by_number = LabelModel(4, variant).fit(world.votes, y)
    by_name = LabelModel(variant=variant).fit(votes, labels)
    assert by_name.classes_.tolist() == NAMES[:4].tolist()
    assert by_number.classes_.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(by_name.predict_proba(votes), by_number.predict_proba(world.votes))
    for tie_break in ("abstain", "lowest", "random"):
        answers = by_name.predict(votes, tie_break=tie_break)
        assert answers.dtype.kind == "U"
        np.testing.assert_array_equal(answers, NAMES[by_number.predict(world.votes, tie_break=tie_break)])
    assert by_name.score(votes, NAMES[world.y]) == by_number.score(world.votes, world.y)
    assert by_name.score(world.votes, world.y) == by_number.score(world.votes, world.y), "numbers are understood too"


def test_the_order_of_given_names_is_the_order_of_columns(named):
    votes, labels, _ = named
    alphabetical = LabelModel().fit(votes, labels)
    other = ["owl", "cat", "eel", "dog"]
    model = LabelModel(class_names=other).fit(votes, labels)
    assert model.classes_.tolist() == other
    columns = [alphabetical.classes_.tolist().index(name) for name in other]
    np.testing.assert_allclose(model.predict_proba(votes), alphabetical.predict_proba(votes)[:, columns], atol=1e-9)
    part = votes[[3]]  # names fewer classes than there are: its own alphabet must not number them
    np.testing.assert_allclose(model.predict_proba(part), alphabetical.predict_proba(part)[:, columns], atol=1e-9)


def test_frames_lists_and_files_of_names(named, tmp_path):
    votes, labels, _ = named
    expected = LabelModel().fit(votes, labels)
    frame = pd.DataFrame(votes, columns=[f"rule {k}" for k in range(votes.shape[1])]).replace("", None)
    frame.to_csv(tmp_path / "votes.csv", index=False)
    same = (votes.tolist(), np.where(votes == "", None, votes), frame, frame.astype("category"), tmp_path / "votes.csv")
    for given in same:
        model = LabelModel().fit(given, pd.Series(labels).replace("", None))
        assert model.classes_.tolist() == NAMES[:4].tolist()
        np.testing.assert_array_equal(model.predict_proba(given), expected.predict_proba(votes))
    assert model.lf_summary().to_dicts()[0]["lf"] == "rule 0"
    assert set(model.lf_summary().to_dicts()[0]["specialties"]) <= set(NAMES[:4])
    assert "rule 0" in str(model.lf_summary())
    assert "cat" in str(model.lf_summary())


def test_a_class_that_only_a_label_names():
    model = LabelModel(variant="majority").fit([["b", "b"], ["c", ""], ["b", "c"]], ["", "a", ""])
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.predict([["b", "b"]]).tolist() == ["b"]


def test_saved_and_loaded(named, tmp_path):
    votes, labels, _ = named
    model = LabelModel().fit(votes, labels)
    model.save(tmp_path / "model.safetensors")
    loaded = LabelModel.load(tmp_path / "model.safetensors")
    assert loaded.classes_.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(loaded.predict(votes), model.predict(votes))
    assert str(loaded.lf_summary()) == str(model.lf_summary())


def test_parts_of_named_votes(named):
    votes, labels, _ = named
    whole = LabelModel(class_names=NAMES[:4].tolist()).fit(votes, labels)
    parts = LabelModel(class_names=NAMES[:4].tolist())
    for rows in (slice(0, 7), slice(7, None)):  # the first part does not name every class in its own alphabet
        parts.partial_fit(votes[rows], labels[rows])
    np.testing.assert_allclose(parts.predict_proba(votes), whole.predict_proba(votes), atol=1e-9)
    with pytest.raises(InputError, match="cannot count the classes of rows to come; give n_classes or class_names"):
        LabelModel().partial_fit(votes)
    with pytest.raises(InputError, match="the votes name 2 classes, but n_classes is 4"):
        tally_votes([["cat", "dog"]], 4)


def test_classes_are_counted_where_nobody_says():
    assert LabelModel(variant="majority").fit([[0, 2], [1, 1]]).classes_.tolist() == [0, 1, 2]
    assert LabelModel(variant="majority").fit([[0, 0], [0, 1]], y=[3, -1]).classes_.tolist() == [0, 1, 2, 3]
    assert LabelModel(variant="majority").fit([[0, 0]], class_balance=[0.2, 0.3, 0.5]).classes_.tolist() == [0, 1, 2]
    assert LabelModel(variant="majority").fit([[0]], specialties=np.ones((1, 4), bool)).classes_.tolist() == [
        0,
        1,
        2,
        3,
    ]
    stored = scipy.sparse.csr_matrix(([0, 4], ([0, 1], [0, 1])), shape=(2, 2))
    assert len(LabelModel(variant="majority").fit(stored).classes_) == 5


@pytest.mark.parametrize(
    ("settings", "votes", "y", "message"),
    [
        (
            {"class_names": ["a", "b"]},
            [["a", "c"]],
            None,
            "votes, row 0, labeling function 1: 'c' is no class; the classes are a, b",
        ),
        ({"class_names": ["a", "b"]}, [["a", "b"]], ["z"], "y, row 0: 'z' is no class; the classes are a, b"),
        ({"class_names": ["a", "b"], "n_classes": 3}, [["a", "b"]], None, "n_classes is 3, but the classes are a, b"),
        ({"class_names": ["a", "a"]}, [["a", "b"]], None, "none of them empty or twice"),
        ({"class_names": ["a", ""]}, [["a", "b"]], None, "none of them empty or twice"),
        ({"class_names": "ab"}, [["a", "b"]], None, "class_names is 'ab'; give a list"),
        ({"class_names": ["1", "0"]}, [[0, 1]], None, "'1' would be class 0; a name that is a number must be its own"),
        ({}, [["a", "a"]], None, r"the votes name one class, .'a'.; give all as class_names"),
        ({}, [[0, 1]], ["a"], "y holds class names, but the votes are class numbers"),
    ],
)
def test_names_that_do_not_fit(settings, votes, y, message):
    with pytest.raises(InputError, match=message):
        LabelModel(**settings).fit(votes, y)


def test_a_model_of_numbers_knows_no_names(world):
    model = LabelModel(4, "majority").fit(world.votes)
    with pytest.raises(InputError, match="votes are class names, but the model was fitted on class numbers"):
        model.predict(NAMES[world.votes])


def test_a_frame_is_read_as_its_file_is():
    """Missing cells abstain, nullable integers too; ids and labels are no votes."""
    frame = pd.DataFrame(
        {
            "id": ["a", "b", "c"],
            "rule": [0.0, np.nan, 2.0],
            "model": pd.array([1, None, 2], dtype="Int64"),
            "label": [0, 1, 2],
        }
    )
    assert check_votes(frame, 3).tolist() == [[0, 1], [-1, -1], [2, 2]]
    mixed = pd.DataFrame({"rule": ["cat", 1]})
    with pytest.raises(InputError, match=r"row 0, column .rule.: cat is not a class number, but 1 in .*row 1"):
        check_votes(mixed, 3)
    with pytest.raises(InputError, match=r"votes are empty \(shape \(3, 0\)\)"):
        check_votes(frame[["id"]], 3)


ANSWERS = [("photo-2", "ben", "dog"), ("photo-1", "anna", "cat"), ("photo-1", "ben", "dog"), ("photo-3", "anna", "")]


def test_answers_one_a_line():
    table = pivot_answers(*zip(*ANSWERS, strict=True))
    assert table.ids.tolist() == ["photo-2", "photo-1", "photo-3"]
    assert table.lf_names == ["ben", "anna"]
    assert table.class_names == ["cat", "dog"]
    assert table.votes.tolist() == [[1, -1], [1, 0], [-1, -1]]
    model = LabelModel(variant="majority").fit(table)
    assert model.predict(table).tolist() == ["dog", "", ""]


@pytest.mark.parametrize("header", ["task,worker,label", "item_id,annotator,answer", "Image,Rater,Vote"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_of_answers(tmp_path, header, ending):
    frame = pd.DataFrame(ANSWERS, columns=header.split(","))
    path = tmp_path / f"answers.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    table, expected = read_votes(path), pivot_answers(*zip(*ANSWERS, strict=True))
    assert table.ids.tolist() == expected.ids.tolist()
    assert table.lf_names == expected.lf_names
    np.testing.assert_array_equal(table.votes, expected.votes)


def test_answers_that_contradict_each_other(tmp_path):
    path = tmp_path / "answers.csv"
    path.write_text("task,worker,label\n1,anna,0\n1,ben,1\n1,anna,0\n")
    assert read_votes(path).votes.tolist() == [[0, 1]], "the same answer twice is one"
    path.write_text("task,worker,label\n1,anna,0\n1,ben,1\n1,anna,2\n")
    with pytest.raises(InputError, match="line 4: anna has answered 1 before, otherwise; keep one answer"):
        read_votes(path)
    path.write_text("task,worker,label\n")
    with pytest.raises(InputError, match="no answers below the header"):
        read_votes(path)
    with pytest.raises(InputError, match="2 items, 1 annotators, 2 answers"):
        pivot_answers([1, 2], ["a"], [0, 1])


def test_columns_beside_answers_are_passed_over_but_not_beside_ids(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text("task,seconds,worker,label\n1,3.5,anna,0\n1,9,ben,1\n")
    assert read_votes(path).votes.tolist() == [[0, 1]]
    path.write_text("id,user,answer,label\n1,0,1,0\n2,1,1,1\n")
    table = read_votes(path)
    assert table.lf_names == ["user", "answer"], "labeling functions may be called so"
    assert table.y.tolist() == [0, 1]

"""The split: stratified test set, balanced labels, the user's own labels, and the way through split.json."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpssl.data.label_choice import read_ids
from dpssl.data.readers import load_dataset
from dpssl.data.split import Split, ids_in_json, labels_a_class, make_split, split_from_json, split_to_json
from dpssl.data.table import Dataset
from dpssl.errors import InputError


def a_dataset(truth: list[int], given_labels: list[int] | None = None, n_test: int = 0, n_classes: int = 0) -> Dataset:
    """Images whose pixel is their row number, so that a moved row is seen."""
    n = len(truth)
    return Dataset(
        name="tiny",
        images=np.arange(n, dtype=np.uint8).reshape(n, 1, 1, 1),
        ids=np.array([f"id-{row}" for row in range(n)]),
        class_names=tuple(f"class-{label}" for label in range(n_classes or max(truth) + 1)),
        given_labels=np.array(given_labels or [-1] * n),
        truth=np.array(truth),
        test_images=np.zeros((n_test, 1, 1, 1), dtype=np.uint8),
        test_ids=np.array([f"test-{row}" for row in range(n_test)], dtype=str),
        test_truth=np.zeros(n_test, dtype=np.int64),
    )


def same(first: tuple[Dataset, Split], second: tuple[Dataset, Split]) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for one, other in zip(first, second, strict=True)
        for name in one.__dataclass_fields__
    )


def test_digits_are_split_as_the_default_run_needs_them() -> None:
    dataset, split = make_split(load_dataset("digits"), n_labels=40, seed=1)
    assert (len(dataset.images), len(dataset.test_images)) == (1437, 360)
    assert np.bincount(dataset.truth[split.labeled]).tolist() == [4] * 10
    assert np.array_equal(split.given_labels[split.labeled], dataset.truth[split.labeled])
    assert (split.given_labels[split.unlabeled] == -1).all()
    test_share = np.bincount(dataset.test_truth) / (np.bincount(dataset.test_truth) + np.bincount(dataset.truth))
    assert (np.abs(test_share - 0.2) < 0.006).all()  # one image of about 180


def test_the_seed_alone_decides() -> None:
    digits = load_dataset("digits")
    assert same(make_split(digits, 40, seed=3), make_split(digits, 40, seed=3))
    labeled = [
        set(dataset.ids[split.labeled]) for dataset, split in (make_split(digits, 40, seed) for seed in range(5))
    ]
    assert all(one != other for i, one in enumerate(labeled) for other in labeled[:i])


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(8, 30), min_size=2, max_size=5),
    extra=st.integers(0, 9),
    seed=st.integers(0, 2**32),
    fraction=st.floats(0.05, 0.4),
)
def test_rows_are_parted_and_stay_with_their_labels(counts: list[int], extra: int, seed: int, fraction: float) -> None:
    truth = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    whole = a_dataset(truth.tolist())
    n_labels = len(counts) + extra
    dataset, split = make_split(whole, n_labels, seed, fraction)
    assert sorted([*dataset.ids, *dataset.test_ids]) == sorted(whole.ids)
    assert np.array_equal(np.sort([*split.labeled, *split.unlabeled]), np.arange(len(dataset.images)))
    assert len(split.labeled) == n_labels
    revealed = np.bincount(dataset.truth[split.labeled], minlength=len(counts))
    assert revealed.max() - revealed.min() <= 1
    assert len(dataset.test_ids) == int(np.ceil(sum(counts) * fraction))
    expected = np.array(counts) * fraction
    assert (np.abs(np.bincount(dataset.test_truth, minlength=len(counts)) - expected) < 1).all()
    for images, ids, labels in (
        (dataset.images, dataset.ids, dataset.truth),
        (dataset.test_images, dataset.test_ids, dataset.test_truth),
    ):
        rows = images.ravel()
        assert ids.tolist() == [f"id-{row}" for row in rows]
        assert np.array_equal(labels, truth[rows])
    restored = split_from_json(whole, json.loads(json.dumps(split_to_json(dataset, split))))
    assert same(restored, (dataset, split))


def test_the_remainder_goes_to_the_first_classes() -> None:
    dataset, split = make_split(a_dataset([0, 1, 2] * 10), n_labels=5, seed=0)
    assert np.bincount(dataset.truth[split.labeled]).tolist() == [2, 2, 1]


def test_given_labels_are_used_and_never_held_out() -> None:
    given_labels = [0, 1, 1, -1, -1, -1]
    dataset, split = make_split(a_dataset(given_labels, given_labels), n_labels=999, seed=0)
    assert split.labeled.tolist() == [0, 1, 2]
    assert split.unlabeled.tolist() == [3, 4, 5]
    assert split.given_labels.tolist() == given_labels
    assert len(dataset.test_images) == 0  # nothing could be measured on images of unknown truth


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.2, 0.5, 0.9])
def test_a_class_keeps_its_last_image_where_others_can_give_one(fraction: float) -> None:
    truth = [0] * 20 + [1] * 20 + [2]
    dataset, split = make_split(a_dataset(truth), n_labels=3, seed=0, test_fraction=fraction)
    assert len(dataset.test_ids) == int(np.ceil(41 * fraction))
    assert 2 not in dataset.test_truth
    assert 2 in dataset.truth[split.labeled]


def test_many_classes_of_one_image_leave_the_test_set_to_the_others() -> None:
    truth = [0] * 20 + list(range(1, 9))
    dataset, _ = make_split(a_dataset(truth), n_labels=9, seed=0)
    assert dataset.test_truth.tolist() == [0] * 6


def test_an_existing_test_set_stays() -> None:
    dataset, split = make_split(a_dataset([0, 1] * 5, n_test=3), n_labels=2, seed=0)
    assert len(dataset.images) == 10
    assert dataset.test_ids[split.test].tolist() == ["test-0", "test-1", "test-2"]


def test_images_of_unknown_truth_are_neither_test_nor_labelled() -> None:
    dataset, split = make_split(a_dataset([0, 1] * 10 + [-1] * 30), n_labels=4, seed=0, test_fraction=0.25)
    assert len(dataset.test_ids) == 5
    assert (dataset.test_truth >= 0).all()
    assert (dataset.truth[split.labeled] >= 0).all()
    assert (dataset.truth == -1).sum() == 30


@pytest.mark.parametrize(
    ("dataset", "arguments", "message"),
    [
        (a_dataset([0, 1, 2] * 5), {"n_labels": 2}, r"--n-labels 2: .*'class-2' .*a class without a labelled example"),
        (a_dataset([0, 1, 2] * 5), {"n_labels": 0}, r"'class-0' .*a class without a labelled example"),
        (a_dataset([0, 1, 2] * 5), {"n_labels": -4}, r"--n-labels -4"),
        (a_dataset([0] * 20 + [1] * 3), {"n_labels": 8}, r"asks for 4 labels of class 'class-1', which has 2 images"),
        (a_dataset([0, 1] * 5, n_classes=3), {"n_labels": 3}, r"asks for 1 labels of class 'class-2', which has 0"),
        (a_dataset([0, 1] * 5), {"n_labels": 8}, r"no unlabelled images, all 8 .*; lower --n-labels or add"),
        (
            a_dataset([0, 1] * 5),
            {"labels_per_class": 4},
            r"no unlabelled images, all 8 .*; lower --labels-per-class or",
        ),
        (
            a_dataset([0, 1], n_test=1),
            {"labeled_ids": ["id-0", "id-1"]},
            r"no unlabelled images, all 2 .*; name fewer in --labeled-ids or add",
        ),
        (a_dataset([0, 1, -1], [0, 1, -1], n_classes=3), {}, r"class 'class-2' is a class without a labelled example"),
        (a_dataset([0, 1], [0, 1]), {}, r"no unlabelled images, all 2 .*; leave some of them unlabelled or add images"),
        (a_dataset([0, 1]), {"test_fraction": 0.1}, r"would hold out all 1 .*'class-0'; add images of it"),
        (a_dataset([0, 1] * 5), {"test_fraction": 0.0}, r"--test-fraction 0\.0"),
        (a_dataset([0, 1] * 5), {"test_fraction": 1.0}, r"--test-fraction 1\.0"),
        (a_dataset([0, 1] * 5), {"test_fraction": float("nan")}, r"--test-fraction nan"),
        (a_dataset([0, 1] * 5), {"test_fraction": 0.9}, r"--test-fraction 0\.9: would hold out all 5 .*'class-0'"),
        (a_dataset([0, 1] * 5), {"seed": -1}, r"--seed -1"),
    ],
)
def test_impossible_splits_say_why(dataset: Dataset, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_split(dataset, **({"n_labels": 2, "seed": 0} | arguments))  # type: ignore[arg-type]


def test_a_split_of_other_data_is_refused() -> None:
    whole = a_dataset([0, 1] * 10)
    document = split_to_json(*make_split(whole, 4, seed=0))
    with pytest.raises(InputError, match=r"id 'id-\d+' is not in the data set"):
        split_from_json(a_dataset([0, 1] * 5), document)
    with pytest.raises(InputError, match=r"names 16 of the data set's 26 images, and not \['id-20'"):
        split_from_json(a_dataset([0, 1] * 15), document)


@pytest.mark.parametrize(
    "change", [{"labeled": ["id-0"]}, {"labeled": {"id-0": "cat"}}, {"labeled": {"id-0": 7}}, {"unlabeled": None}]
)
def test_a_damaged_split_is_refused(change: dict[str, object]) -> None:
    whole = a_dataset([0, 1] * 10)
    with pytest.raises(InputError):
        split_from_json(whole, split_to_json(*make_split(whole, 4, seed=0)) | change)


# Labels per class, from folds, by id


def test_labels_per_class_is_that_many_of_each_whatever_the_balance() -> None:
    truth = [0] * 60 + [1] * 12 + [2] * 6
    dataset, split = make_split(a_dataset(truth, n_test=3), n_labels=999, seed=0, labels_per_class=3)
    assert np.bincount(dataset.truth[split.labeled]).tolist() == [3, 3, 3]
    with pytest.raises(InputError, match=r"--labels-per-class 7: asks for 7 labels of class 'class-2', which has 6"):
        make_split(a_dataset(truth, n_test=3), 40, seed=0, labels_per_class=7)
    even = make_split(a_dataset([0, 1, 2] * 10, n_test=3), n_labels=9, seed=4)
    assert same(even, make_split(a_dataset([0, 1, 2] * 10, n_test=3), n_labels=1, seed=4, labels_per_class=3))


def with_folds(truth: list[int], *folds: list[int], n_test: int = 2) -> Dataset:
    return replace(a_dataset(truth, n_test=n_test), folds=tuple(np.array(fold) for fold in folds))


def test_labels_come_from_the_fold() -> None:
    whole = with_folds([0, 1] * 10 + [-1] * 30, [0, 1, 2, 3, 4], [10, 11, 12, 13])
    _, split = make_split(whole, n_labels=4, seed=0, fold=1)
    assert set(split.labeled) < {0, 1, 2, 3, 4}
    assert len(split.labeled) == 4
    for n_labels in (4, 5, 1000):  # all of it, be it balanced or not
        dataset, split = make_split(whole, n_labels, seed=0, fold=2)
        assert split.labeled.tolist() == [10, 11, 12, 13]
        assert np.array_equal(split.given_labels[split.labeled], dataset.truth[split.labeled])


def test_folds_stay_with_their_images_where_a_test_set_is_held_out() -> None:
    whole = with_folds([0, 1] * 20, list(range(20, 40)), n_test=0)
    dataset, _ = make_split(whole, n_labels=4, seed=0, fold=1)
    assert set(dataset.images[dataset.folds[0]].ravel()) == set(range(20, 40)) - set(dataset.test_images.ravel())


@pytest.mark.parametrize(
    ("dataset", "fold", "message"),
    [
        (a_dataset([0, 1] * 5, n_test=1), 1, r"--fold 1: tiny has no published folds"),
        (with_folds([0, 1] * 5, [0, 1]), 2, r"--fold 2: tiny has the folds 1 to 1"),
        (with_folds([0, 1] * 5, [0, 2, 4, 6]), 1, r"--fold 1 --n-labels 3: asks for 1 labels of class 'class-1', .* 0"),
    ],
)
def test_impossible_folds_say_why(dataset: Dataset, fold: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_split(dataset, 3, seed=0, fold=fold)


def test_exactly_the_named_images_are_labelled() -> None:
    whole = a_dataset([0, 1] * 10)
    dataset, split = make_split(whole, 999, seed=0, test_fraction=0.4, labeled_ids=["id-7", "id-2", "id-4"])
    assert dataset.ids[split.labeled].tolist() == ["id-2", "id-4", "id-7"]
    assert split.given_labels[split.labeled].tolist() == [0, 0, 1]
    assert not {"id-2", "id-4", "id-7"} & set(dataset.test_ids)


def test_named_images_hide_the_other_labels_a_user_gave() -> None:
    given_labels = [0, 1, 0, 1, 0, 1, -1, -1]
    dataset, split = make_split(
        a_dataset(given_labels, given_labels, n_test=1), 4, seed=0, labeled_ids=["id-0", "id-3"]
    )
    assert split.given_labels.tolist() == [0, -1, -1, 1, -1, -1, -1, -1]
    assert dataset.truth.tolist() == given_labels


def test_the_truth_of_other_images_does_not_touch_a_split_by_ids() -> None:
    truth = np.array([0, 1, 2] * 8)
    lies = np.where(np.isin(np.arange(24), [0, 1, 2]), truth, (truth + 1) % 3)
    ids = ["id-0", "id-1", "id-2"]
    honest, lying = (
        make_split(a_dataset(labels.tolist(), n_test=2), 5, seed=3, labeled_ids=ids) for labels in (truth, lies)
    )
    assert split_to_json(*honest) == split_to_json(*lying)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["id-0", "id-99"], r"--labeled-ids: 'id-99' is no image of the data; the first image is 'id-0'"),
        (["id-0", "test-1"], r"'test-1' is a test image"),
        (["id-0", "id-1", "id-8"], r"the class of 'id-8' is not known"),
        (["id-0", "id-2"], r"class 'class-1' is a class without a labelled example"),
    ],
)
def test_ids_that_cannot_be_labelled_are_named(ids: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_split(a_dataset([0, 1] * 4 + [-1], n_test=2), 4, seed=0, labeled_ids=ids)


def test_ids_are_read_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("cat one.png\n\n  dog.png \r\nä\n", encoding="utf-8")
    assert read_ids(str(path)) == ["cat one.png", "dog.png", "ä"]
    path.write_text("cat/0.png\ncat/1.png\n", encoding="utf-8-sig")
    assert read_ids(str(path)) == ["cat/0.png", "cat/1.png"]
    for content, message in ((b"\n\n", "names no id"), (b"a\nb\na\n", "'a' stands there twice"), (b"\xff", "be read")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"--labeled-ids .*ids\.txt: .*{message}"):
            read_ids(str(path))
    with pytest.raises(InputError, match=r"none\.txt: cannot be read"):
        read_ids(str(tmp_path / "none.txt"))


def test_the_labels_a_class_has_are_said() -> None:
    assert labels_a_class(*make_split(a_dataset([0, 1, 2] * 10), 6, seed=0)) == "2 a class"
    given_labels = [0, 0, 0, 1, 2, 2, -1]
    unbalanced = make_split(a_dataset(given_labels, given_labels), 4, seed=0)
    assert labels_a_class(*unbalanced) == "1 (class-1) to 3 (class-0) a class"


def test_trusted_labels_are_for_training_alone() -> None:
    whole = a_dataset([0, 1] * 10)
    dataset, split = make_split(whole, 4, seed=0)
    rows = split.unlabeled[:3]
    trusting = split.trusting(
        np.array([*rows, split.labeled[0]]), np.array([1, 0, 1, 1 - split.given_labels[split.labeled[0]]])
    )
    assert trusting.trusted.tolist() == rows.tolist(), "a given label is never overruled"
    assert trusting.training_labels[rows].tolist() == [1, 0, 1]
    assert (trusting.given_labels == split.given_labels).all()
    assert (trusting.unlabeled == split.unlabeled).all()
    _, restored = split_from_json(whole, json.loads(json.dumps(split_to_json(dataset, trusting))))
    assert (restored.training_labels == trusting.training_labels).all()
    assert "trusted" not in split_to_json(dataset, split)


def test_a_split_names_every_image() -> None:
    whole = a_dataset([0, 1] * 10)
    dataset, split = make_split(whole, 4, seed=0)
    assert ids_in_json(split_to_json(dataset, split)) == set(whole.ids.tolist())
    left_out = replace(split, unlabeled=split.unlabeled[1:], left_out=split.unlabeled[:1])
    assert ids_in_json(split_to_json(dataset, left_out)) == set(whole.ids.tolist())
    for document in ({}, {"labeled": []}, []):
        with pytest.raises(InputError, match=r"split\.json: misses"):
            ids_in_json(document)


def test_a_damaged_trusted_label_is_named() -> None:
    whole = a_dataset([0, 1] * 10)
    dataset, split = make_split(whole, 4, seed=0)
    document = split_to_json(dataset, split) | {"trusted": {str(dataset.ids[split.unlabeled[0]]): 7}}
    with pytest.raises(InputError, match="trusted label 7"):
        split_from_json(whole, document)

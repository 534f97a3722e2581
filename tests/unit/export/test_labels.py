"""Rows joined from soft labels and given labels."""

import numpy as np
import pytest

from dpssl.errors import InputError, RunFolderError
from dpssl.export.labels import LabelRows, read_labels
from dpssl.review.corrections import NO_CLASS, UNDECIDED, CorrectionLog
from dpssl.run_folder import RunFolder


def test_given_labels_stand_and_uncovered_images_have_none(rows: LabelRows, folder: RunFolder) -> None:
    assert rows.source is not None
    assert (rows.label_of(3), rows.source[3]) == (None, "")
    assert (rows.label_of(5), rows.source[5], rows.confidence[5]) == ("../../etc", "given", 1.0)
    assert (rows.label_of(1), rows.source[1]) == ("=cmd()|' /C calc'!A1", "model")
    np.testing.assert_array_equal(rows.probabilities, folder.read_soft_labels().soft_labels)


def test_min_confidence_leaves_out_unsure_and_unlabelled_images(folder: RunFolder) -> None:
    rows = read_labels(folder)
    kept, everything = rows.at_least(0.6).ids.tolist(), rows.ids.tolist()
    assert [everything.index(id) for id in everything if id not in kept] == [0, 3]
    assert len(rows.at_least(0)) == len(rows)
    assert len(rows.at_least(1)) == 1, "what a person gave is certain"


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_min_confidence_is_a_probability(folder: RunFolder, value: float) -> None:
    with pytest.raises(InputError, match=f"--min-confidence {value}: must be a probability"):
        read_labels(folder).at_least(value)


@pytest.mark.parametrize("labeled", [{"nobody": 0}, {"..": 99}, {"..": "cat"}, [1]])
def test_a_split_that_does_not_fit_is_refused(folder: RunFolder, labeled: object) -> None:
    folder.write_json("split.json", {"labeled": labeled})
    with pytest.raises(RunFolderError, match=r"split\.json"):
        read_labels(folder)


def test_labels_of_votes_without_a_split(folder: RunFolder) -> None:
    folder.path("split.json").unlink()
    rows = read_labels(folder)
    assert rows.source is not None
    assert set(rows.source.tolist()) == {"model", ""}


def test_what_was_decided_in_a_review_stands(folder: RunFolder) -> None:
    before = read_labels(folder)
    ids, n_classes = [f"image {row}" for row in range(len(before))], len(before.class_names)
    folder.write_soft_labels(ids, [f"class {c}" for c in range(n_classes)], before.probabilities, before.covered)
    folder.write_json("split.json", {"labeled": {ids[5]: 2}})
    log = CorrectionLog(folder, ids, [f"class {c}" for c in range(n_classes)], before.labels, "Ada")
    log.decide([(1, 4), (2, NO_CLASS), (3, 0), (5, 1), (6, 3)])
    log.decide([(6, UNDECIDED)])  # taken back
    log.close()
    rows = read_labels(folder)
    assert rows.source is not None
    found = [(rows.label_of(row), str(rows.source[row])) for row in (1, 2, 3, 5, 6)]
    assert found == [("class 4", "given"), (None, ""), ("class 0", "given"), ("class 1", "given"), ("class 0", "model")]
    assert rows.confidence[[1, 3, 5]].tolist() == [1, 1, 1]

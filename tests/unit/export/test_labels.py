"""Rows joined from soft labels and given labels."""

import numpy as np
import pytest

from dpssl.errors import InputError, RunFolderError
from dpssl.export.labels import LabelRows, read_labels
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

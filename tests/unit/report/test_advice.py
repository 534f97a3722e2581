"""Each piece of advice appears when its numbers say so, and not otherwise."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpssl.config import with_values
from dpssl.report.advice import Advice, advise
from dpssl.report.contents import RunContents
from dpssl.report.headline import headlines
from dpssl.report.lf_statistics import describe_lfs
from dpssl.step_files import SoftLabelFile


def titles(advice: list[Advice]) -> str:
    return " | ".join(item.title for item in advice)


def with_soft_labels(contents: RunContents, soft_labels: np.ndarray) -> RunContents:
    names = contents.class_names
    file = SoftLabelFile(contents.dataset.ids, names, soft_labels, np.ones(len(soft_labels), dtype=bool))
    return replace(contents, soft_labels=file)


@pytest.fixture
def healthy(make_run: Any) -> RunContents:
    """Every label sure and right, also of the labelled images; no votes."""
    contents = make_run(files=()).contents()
    return with_soft_labels(contents, 0.01 + 0.97 * np.eye(3)[np.arange(120) % 3])


def test_a_healthy_run_needs_no_advice(healthy: RunContents) -> None:
    assert advise(healthy, None) == []


def test_given_labels_that_look_wrong_are_shown(healthy: RunContents) -> None:
    soft_labels = healthy.soft_labels.soft_labels.copy()
    soft_labels[1] = (0.9, 0.05, 0.05)  # a labelled image of class 1
    (advice,) = advise(with_soft_labels(healthy, soft_labels), None)
    assert advice.title == "Check 1 label that you gave"
    (picture,) = advice.pictures
    assert picture.caption == ("given dog", "rather 90.0 % cat")
    assert picture.name == "image-1"


def test_of_a_run_that_has_not_learnt_single_images_are_not_discussed(healthy: RunContents) -> None:
    unsure = np.tile([0.3, 0.36, 0.34], (120, 1))
    assert titles(advise(with_soft_labels(healthy, unsure), None)) == "Do not use these labels yet"


def test_a_short_run_is_not_believed_however_sure_it_is(healthy: RunContents) -> None:
    soft_labels = healthy.soft_labels.soft_labels.copy()
    soft_labels[1] = (0.9, 0.05, 0.05)  # of a labelled image: a slip, if the run could be believed
    short = replace(with_soft_labels(healthy, soft_labels), config=with_values(healthy.config, {"steps": 420}))
    (advice,) = advise(short, None)
    assert advice.title == "Look at the labels before you use them"
    assert "The run had 420 steps" in advice.text
    (confidence,) = (item for item in headlines(short) if item.name == "Mean confidence")
    assert confidence.meaning.endswith("After so few steps they may be far from the truth.")
    long = replace(short, config=with_values(healthy.config, {"steps": 1000}))  # enough for images of 8 pixels
    assert titles(advise(long, None)) == "Check 1 label that you gave"


@pytest.mark.parametrize(("effective", "told"), [([1.1, 1.0, 0.0, 2.0], True), ([2.0, 3.0], False), (None, False)])
def test_labels_of_one_voice_are_not_counted_by_their_own_word_alone(
    healthy: RunContents, effective: list[float] | None, told: bool
) -> None:
    contents = replace(healthy, summary=healthy.summary | {"effective_lfs_per_class": effective})
    (confidence,) = (item for item in headlines(contents) if item.name == "Mean confidence")
    assert confidence.meaning.endswith("Likely more: the labeling functions err together.") is told


def test_a_run_of_another_system_is_not_sent_to_refine(healthy: RunContents) -> None:
    soft_labels = healthy.soft_labels.soft_labels.copy()
    soft_labels[1] = (0.9, 0.05, 0.05)
    contents = with_soft_labels(healthy, soft_labels)
    (ours,) = advise(contents, None)
    assert ours.text.endswith("Correct it with dpssl review, then go on with dpssl refine.")
    (other,) = advise(replace(contents, config=with_values(contents.config, {"method": "fixmatch"})), None)
    assert other.text.endswith("Correct it and train again with them among the given ones.")


def test_images_between_two_classes_are_a_cluster(healthy: RunContents) -> None:
    soft_labels = healthy.soft_labels.soft_labels.copy()
    soft_labels[100:108] = (0.02, 0.5, 0.48)
    soft_labels[108] = (0.5, 0.02, 0.48)  # alone between its two: no cluster
    (advice,) = advise(with_soft_labels(healthy, soft_labels), None)
    assert advice.title == "Label a few images between dog and owl"
    assert advice.text.startswith("8 images")
    assert len(advice.pictures) == 6


def test_a_class_that_hardly_occurs_is_questioned(healthy: RunContents) -> None:
    soft_labels = np.tile([0.98, 0.01, 0.01], (120, 1))
    soft_labels[::2] = (0.01, 0.98, 0.01)
    soft_labels[:12] = healthy.soft_labels.soft_labels[:12]
    assert "Are there really so few of owl?" in titles(advise(with_soft_labels(healthy, soft_labels), None))


def test_uncovered_images_and_rising_rates_are_told(healthy: RunContents) -> None:
    log = [{"stage": "lfs", "step": at, "pseudo_label_rate": 0.1 * at} for at in range(1, 11)]
    found = titles(advise(replace(healthy, summary={"coverage": 0.9}, log=log), None))
    assert found == "10.0 % of the images have no vote | Train longer"


def test_labeling_functions_too_few_idle_or_of_one_voice(make_run: Any) -> None:
    contents = make_run(files=("votes",)).contents()
    votes = np.where(np.arange(120)[:, None] % 3 == 2, -1, np.tile(np.arange(120)[:, None] % 3, 6))
    specialties = np.tile([True, True, False], (6, 1))
    lfs = describe_lfs(replace(contents.votes, votes=votes, specialties=specialties))
    assert titles(advise(contents, lfs)) == (
        "Trust the confidence less than it asks for | Too few specialists for owl | Many labeling functions add nothing"
    )


def test_labeling_functions_that_died_are_told_of_with_what_can_be_done(make_run: Any) -> None:
    contents = make_run(files=("votes",)).contents()
    votes = np.tile(np.arange(120)[:, None] % 3, 6)
    votes[:, 4:] = -1
    specialties = np.ones((6, 3), bool)
    specialties[5] = False  # has no classes: nothing has died
    lfs = describe_lfs(replace(contents.votes, votes=votes, specialties=specialties))
    assert (lfs.dead, lfs.lost) == ([4, 5], [4])
    (told,) = (one for one in advise(contents, lfs) if "died" in one.title)
    assert told.title == "1 labeling function died in training"
    assert "Of 6," in told.text
    assert "--center-rate 0.1" in told.text
    (idle,) = (one for one in advise(contents, lfs) if "add nothing" in one.title)
    assert "Of 6, 1 have no class and 3 repeat another" in idle.text, "the one that died is not to be left out"
    for tried in ({"center_rate": 0.1}, {"feature_transform": False}):
        again = advise(replace(contents, config=with_values(contents.config, tried)), lfs)
        (told,) = (one for one in again if "died" in one.title)
        assert "--center-rate" not in told.text, "which has been tried, or has nothing to act on"
        assert "--n-lfs 5" in told.text


def test_advice_is_the_same_whatever_the_truth(make_run: Any) -> None:
    contents = make_run().contents()
    lfs = describe_lfs(contents.votes)
    blind = replace(contents, dataset=replace(contents.dataset, truth=contents.dataset.given_labels))
    assert advise(contents, lfs) == advise(blind, lfs)


def test_kinds_that_nothing_explains_are_shown(healthy: RunContents) -> None:
    some = healthy.dataset.ids[[3, 7]].tolist()
    kind = {"label": 1, "share": 0.171, "explained": 0.184, "ids": [*some, "gone"]}
    (advice,) = advise(replace(healthy, summary={"unexplained_kinds": [kind]}), None)
    assert advice.title == "Look at a kind of image called dog that looks like no other dog"
    assert "17.1 % of what the run calls dog" in advice.text
    assert "only 18.4 % are called so" in advice.text
    assert [picture.name for picture in advice.pictures] == some
    for nothing in ([], None):
        assert advise(replace(healthy, summary={"unexplained_kinds": nothing}), None) == []


def test_classes_told_apart_by_their_size_are_named(healthy: RunContents) -> None:
    pair = {"near": 0, "far": 1, "enlarged": 0.176, "smaller": 0.24}
    (advice,) = advise(replace(healthy, summary={"told_apart_by_size": [pair]}), None)
    assert advice.title == "Do not rely on cat against dog yet"
    assert "17.6 % of what the end model calls dog becomes cat" in advice.text
    assert "24.0 % of cat becomes dog" in advice.text
    assert "--zoom 1.6" in advice.text
    zoomed = replace(healthy, config=with_values(healthy.config, {"zoom": 1.6}), summary={"told_apart_by_size": [pair]})
    assert "--zoom" not in advise(zoomed, None)[0].text, "it has been tried"
    for nothing in ([], None):
        assert advise(replace(healthy, summary={"told_apart_by_size": nothing}), None) == []

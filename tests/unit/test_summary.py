"""The summary as a person reads it."""

from pathlib import Path
from typing import Any

import pytest

from dpssl.run_folder import RunFolder
from dpssl.summary import as_text

SUMMARY: dict[str, Any] = {
    "n_images": 100, "n_labeled": 8, "n_test": 10, "annotation_accuracy": None, "annotation_macro_f1": None,
    "coverage": 1.0, "test_accuracy": None, "class_names": ["cat", "dog"], "minutes": 1.0,
    "minutes_per_step": {"lfs": 1.0}, "device": "cpu",
}  # fmt: skip


@pytest.mark.parametrize("nothing", [{}, {"told_apart_by_size": None}, {"told_apart_by_size": []}])
def test_no_word_about_sizes_without_a_pair(tmp_path: Path, nothing: dict[str, Any]) -> None:
    assert "rely" not in as_text(SUMMARY | nothing, RunFolder(tmp_path), zoom=1)


def test_classes_that_size_tells_apart_are_named(tmp_path: Path) -> None:
    pair = {"near": 0, "far": 1, "enlarged": 0.3, "smaller": 0.4}
    text = as_text(SUMMARY | {"told_apart_by_size": [pair]}, RunFolder(tmp_path), zoom=1)
    assert "Do not rely on cat against dog yet" in text
    assert "--zoom 1.6" in text
    zoomed = as_text(SUMMARY | {"told_apart_by_size": [pair]}, RunFolder(tmp_path), zoom=1.6)
    assert "Do not rely on cat against dog yet" in zoomed
    assert "--zoom" not in zoomed, "it has been tried"


def test_a_short_run_says_so_and_nothing_of_sizes(tmp_path: Path) -> None:
    pair = {"near": 0, "far": 1, "enlarged": 0.3, "smaller": 0.4}
    text = as_text(SUMMARY | {"told_apart_by_size": [pair]}, RunFolder(tmp_path), zoom=1, few_steps=1420)
    assert "Few steps, 1,420: a label may be wrong however sure it is." in text
    assert "rely" not in text


def test_columns_of_the_class_table_stand_below_their_titles(tmp_path: Path) -> None:
    score = {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    per_class = [{"class": label, "n": 5, "n_annotated": 4.0 + 2 * label, **score} for label in range(2)]
    lines = as_text(SUMMARY | {"per_class": per_class, "n_evaluated": 92}, RunFolder(tmp_path), zoom=1).splitlines()
    header, first = (next(line for line in lines if line.startswith(f"  {name} ")) for name in ("class", "cat  "))
    assert header.endswith("F1")
    assert len(first) == len(header)
    assert header.split()[1:4] == ["truly", "labelled", "so"]
    assert first.split()[1:3] == ["5", "4"], "how many images there are of the class, and how many got it"
    known = SUMMARY | {"per_class": per_class, "n_evaluated": 91}
    (header,) = (line for line in as_text(known, RunFolder(tmp_path), zoom=1).splitlines() if "class " in line)
    assert header.split()[1:4] == ["labelled", "so", "precision"], "of one image the class is not known"

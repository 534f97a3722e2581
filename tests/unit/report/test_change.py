"""What a report says of a run that refines another, or combines several."""

from typing import Any

import numpy as np

from dpssl.report.change import read_change, read_combination
from dpssl.report.headline import headlines


def refined(made: Any, flipped: int) -> Any:
    """As if the run before had another label on the first `flipped` images that have one, and none on the next."""
    contents = made.contents()
    labels = contents.labels
    label = np.full(len(contents.dataset.ids), -1)
    label[labels.rows] = labels.label
    label[labels.rows[:flipped]] = (labels.label[:flipped] + 1) % 3
    label[labels.rows[flipped]] = -1
    made.folder.write_arrays("start/labels.npz", label=label, confidence=np.full(len(label), 0.5, np.float16))
    made.folder.write_json(
        "start/refined.json",
        {
            "refined_from": "runs/<b>first</b>",
            "n_reviewed": 40,
            "n_corrected": 12,
            "n_left_out": 3,
            "summary": {"annotation_accuracy": 0.8, "coverage": 0.9, "test_accuracy": None},
        },
    )
    return contents


def test_labels_that_changed_are_counted_and_shown_surest_first(make_run: Any) -> None:
    made = make_run()
    contents = refined(made, flipped=5)
    labels, names = contents.labels, contents.class_names
    change = read_change(contents, labels)
    assert (change.n_reviewed, change.n_corrected, change.n_left_out, change.n_relabeled) == (40, 12, 3, 5)
    surest = sorted(range(5), key=lambda at: -labels.confidence[at])
    assert [picture.name for picture in change.pictures] == [f"image-{labels.rows[at]}" for at in surest]
    assert change.pictures[0].caption[0] == f"was {names[(labels.label[surest[0]] + 1) % 3]}"
    table = {row.name: (row.before, row.after, row.needs_truth) for row in change.rows}
    assert table["mean confidence"][0] == "50.0 %"
    assert table["annotation accuracy"] == ("80.0 %", "91.0 %", True)
    assert "test accuracy" not in table


def test_the_page_tells_it_with_names_as_text(make_run: Any) -> None:
    made = make_run()
    refined(made, flipped=2)
    page = made.page()
    assert "What the review has changed" in page
    assert "runs/&lt;b&gt;first&lt;/b&gt;" in page


def test_a_run_of_its_own_has_no_such_section(make_run: Any) -> None:
    made = make_run()
    assert read_change(made.contents(), made.contents().labels) is None
    assert read_combination(made.contents()) is None
    page = made.page()
    assert "What the review has changed" not in page
    assert "The runs it learnt from" not in page


def note_combined(made: Any, scores: dict[str, float | None], **more: Any) -> None:
    made.folder.path("start").mkdir(exist_ok=True)
    noted = {
        "combined_from": ["runs/<b>first</b>", "runs/second"],
        "n_trusted": 1234,
        "agreement": 0.876,
        "summaries": [scores, {}],
    }
    made.folder.write_json("start/combined.json", noted | more)


def test_the_runs_it_combines_are_named_beside_it(make_run: Any) -> None:
    made = make_run()
    scores = {"annotation_accuracy": 0.8, "coverage": 0.9, "test_accuracy": None}
    note_combined(made, scores)
    found = read_combination(made.contents())
    assert [(part.annotation, part.test) for part in found.parts[:2]] == [("80.0 %", ""), ("", "")]
    assert found.parts[2].annotation == "91.0 %"
    page = made.page()
    assert "They agree on 87.6 %" in page
    assert "The 1,234 labels" in page
    assert "runs/&lt;b&gt;first&lt;/b&gt;" in page
    assert "<b>first" not in page
    assert "left to the others" not in page, "a run from before that was noted"


def test_what_a_run_has_no_say_about_is_said(make_run: Any) -> None:
    made = make_run()
    names = made.contents().class_names
    note_combined(made, {}, no_say=[[], [[0, 1]]], n_unexplained=[0, 0])
    found = read_combination(made.contents())
    assert [part.no_say for part in found.parts] == ["", f"{names[0]} and {names[1]}", ""]
    page = made.page()
    assert "Classes that a run tells apart" in page
    assert "Kinds of image that the rest" not in page
    note_combined(made, {}, no_say=[[], []], n_unexplained=[0, 4870])
    page = made.page()
    assert "Classes that a run tells apart" not in page
    assert "Kinds of image that the rest" in page
    assert "4,870 images</td>" in page


def test_labels_of_runs_that_disagree_are_not_counted_by_their_own_word_alone(make_run: Any) -> None:
    """Where two runs disagree, one of them is wrong; the run that learnt from both may be as sure as ever."""
    made = make_run()

    def doubt() -> str:
        (confidence,) = (item for item in headlines(made.contents()) if item.name == "Mean confidence")
        return confidence.meaning

    assert "disagree" not in doubt()
    note_combined(made, {})
    assert doubt().endswith("Likely more: the runs it learnt from disagree on 12.4 % of the images.")
    note_combined(made, {}, agreement=1.0)
    assert "disagree" not in doubt()

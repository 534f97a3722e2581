"""What a run came from: the run that it refines beside what it changed, or the runs that it combines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpssl.report.contents import Labels, RunContents
from dpssl.report.gallery import Picture, picture
from dpssl.report.names import percent, probability, short, shown
from dpssl.run_folder import START

REFINED, LABELS_BEFORE = "refined.json", "labels.npz"  # what `dpssl refine` leaves of the run before
COMBINED = "combined.json"  # what `dpssl combine` notes about the runs before
MOST_PICTURES = 12


@dataclass(frozen=True)
class BeforeAndAfter:
    name: str
    before: str
    after: str
    needs_truth: bool = False


@dataclass(frozen=True)
class Change:
    refined_from: str
    n_reviewed: int
    n_corrected: int
    n_left_out: int
    n_relabeled: int  # of the images that nobody reviewed
    rows: list[BeforeAndAfter]
    pictures: list[Picture]  # of those that changed, the surest first


def read_change(contents: RunContents, labels: Labels | None) -> Change | None:
    """None where the run refines no other, or has no labels yet."""
    folder = contents.folder
    if labels is None or not folder.has(f"{START}/{REFINED}"):
        return None
    noted = folder.read_json(f"{START}/{REFINED}")
    before = folder.read_arrays(f"{START}/{LABELS_BEFORE}", "label", "confidence")
    compared = np.flatnonzero(before["label"][labels.rows] >= 0)  # had a label then and now, and nobody gave it
    rows = labels.rows[compared]
    changed = compared[before["label"][rows] != labels.label[compared]]
    surest_first = changed[np.argsort(-labels.confidence[changed], kind="stable")]
    names = contents.class_names
    earlier = float(before["confidence"][rows].astype(np.float64).mean()) if len(rows) else 0.0
    now = float(labels.confidence[compared].mean()) if len(rows) else 0.0
    return Change(
        refined_from=shown(noted["refined_from"]),
        n_reviewed=noted["n_reviewed"],
        n_corrected=noted["n_corrected"],
        n_left_out=noted["n_left_out"],
        n_relabeled=len(changed),
        rows=[BeforeAndAfter("mean confidence", probability(earlier), probability(now)), *_scores(contents, noted)],
        pictures=[
            picture(
                contents,
                int(labels.rows[at]),
                (
                    f"was {shown(names[before['label'][labels.rows[at]]])}",
                    f"now {probability(labels.confidence[at])} {shown(names[labels.label[at]])}",
                ),
            )
            for at in surest_first[:MOST_PICTURES]
        ],
    )


@dataclass(frozen=True)
class Combination:
    n_trusted: int
    agreement: str
    parts: list["Part"]


@dataclass(frozen=True)
class Part:
    """One of the runs that were combined, or the run that came of it; the accuracies need the truth."""

    name: str
    annotation: str
    test: str
    no_say: str = ""  # between these classes
    n_silent: int = 0  # images about which it has no say


def disagreement(contents: RunContents) -> float | None:
    """On what share of the unlabelled images the runs that it combines disagree; None where it combines no others."""
    noted = _noted_of_combined(contents)
    return None if noted is None else 1 - float(noted["agreement"])


def read_combination(contents: RunContents) -> Combination | None:
    """None where the run combines no others."""
    if (noted := _noted_of_combined(contents)) is None:
        return None
    names = [shown(name) for name in noted["combined_from"]]
    if noted.get("methods"):
        names = [f"{name} ({shown(method)})" for name, method in zip(names, noted["methods"], strict=True)]
    no_say = [pairs_in_words(pairs, contents.class_names) for pairs in noted.get("no_say") or [[]] * len(names)]
    n_silent = noted.get("n_unexplained") or [0] * len(names)
    found = [_part(*of_one) for of_one in zip(names, noted["summaries"], no_say, n_silent, strict=True)]
    return Combination(noted["n_trusted"], percent(noted["agreement"]), [*found, _part("this run", contents.summary)])


def _noted_of_combined(contents: RunContents) -> dict[str, Any] | None:
    place = f"{START}/{COMBINED}"
    return contents.folder.read_json(place) if contents.folder.has(place) else None


def pairs_in_words(pairs: Sequence[Sequence[int]], class_names: Sequence[str]) -> str:
    """Pairs of classes in a sentence: cat and dog; deer and horse."""
    return "; ".join(" and ".join(short(class_names[place], 30) for place in pair) for pair in pairs)


def _part(name: str, summary: Mapping[str, float | None], no_say: str = "", n_silent: int = 0) -> Part:
    annotation, test = summary.get("annotation_accuracy"), summary.get("test_accuracy")
    scores = ["" if score is None else percent(score) for score in (annotation, test)]
    return Part(name, scores[0], scores[1], no_say, n_silent)


def _scores(contents: RunContents, noted: dict[str, dict[str, float | None]]) -> list[BeforeAndAfter]:
    shown_scores = {
        "coverage": ("coverage", False),
        "annotation_accuracy": ("annotation accuracy", True),
        "test_accuracy": ("test accuracy", True),
    }
    found = []
    for key, (name, needs_truth) in shown_scores.items():
        before, after = noted["summary"].get(key), contents.summary.get(key)
        if before is not None and after is not None:
            found.append(BeforeAndAfter(name, percent(before), percent(after), needs_truth))
    return found

"""The numbers a report opens with, each with its meaning in a sentence."""

from dataclasses import dataclass
from statistics import median

from dpssl.report.advice import ONE_VOICE
from dpssl.report.change import disagreement
from dpssl.report.contents import RunContents
from dpssl.report.names import percent, probability, rough

SURE = 0.95


@dataclass(frozen=True)
class Headline:
    name: str
    value: str
    meaning: str
    needs_truth: bool = False


def headlines(contents: RunContents) -> list[Headline]:
    """Those that the run has; what needs the truth comes last."""
    summary, labels = contents.summary, contents.labels
    n_unlabeled, n_labeled = len(contents.split.unlabeled), len(contents.split.labeled)
    found: list[Headline] = []
    if labels is not None:
        sure = labels.confidence >= SURE
        wrong = float(labels.expected_wrong.sum())
        found += [
            Headline(
                "Images labelled",
                f"{len(labels.rows):,}",
                f"of {n_unlabeled:,} without a label ({percent(len(labels.rows) / n_unlabeled)}, the coverage), from "
                f"{n_labeled:,} given labels.",
            ),
            Headline(
                "Mean confidence",
                probability(float(labels.confidence.mean())),
                (
                    f"By their own probabilities, about {wrong:,.0f} of the labels are wrong."
                    if wrong >= 1
                    else "By their own probabilities, hardly a label is wrong."
                )
                + _doubt(contents),
            ),
            Headline(
                f"Sure at {100 * SURE:.0f} %",
                percent(float(sure.mean())),
                f"{int(sure.sum()):,} labels are this sure or surer; among them about "
                f"{rough(float((1 - labels.confidence[sure]).sum()))} are expected to be wrong."
                if sure.any()
                else "No label is this sure.",
            ),
        ]
    truths = {
        "annotation_accuracy": (
            "Annotation accuracy",
            "of the unlabelled images have the right label; one without a vote counts as a guess.",
        ),
        "annotation_macro_f1": (
            "Macro F1",
            "The same, every class counting alike: the mean over classes of precision and recall in one.",
        ),
        "test_accuracy": (
            "Test accuracy",
            f"of {summary.get('n_test', 0):,} held-out images are classified correctly by the end model.",
        ),
    }
    for key, (name, meaning) in truths.items():
        if summary.get(key) is not None:
            found.append(Headline(name, percent(summary[key]), meaning, needs_truth=True))
    return found


def _doubt(contents: RunContents) -> str:
    """Why the labels' own probabilities say too little of what is wrong, where that is known."""
    if contents.had_few_steps:
        return " After so few steps they may be far from the truth."
    if apart := disagreement(contents):
        return f" Likely more: the runs it learnt from disagree on {percent(apart)} of the images."
    effective = [n for n in contents.summary.get("effective_lfs_per_class") or [] if n > 0]
    if effective and median(effective) < ONE_VOICE:
        return " Likely more: the labeling functions err together."
    return ""

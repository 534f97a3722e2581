"""What to do next, derived from the numbers of the run. Reads no truth: the advice is the same where none is known."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dpssl.config import DP_SSL
from dpssl.constants import AGAINST_SIZE
from dpssl.report.contents import Labels, RunContents
from dpssl.report.gallery import Picture, picture, pictures
from dpssl.report.lf_statistics import LFStatistics
from dpssl.report.names import joined, percent, probability, short, shown

NOT_LEARNT = 0.5  # mean confidence
BELIEVED = 0.8  # in a class other than the given one
FEW_SPECIALISTS = 3  # fewer cannot outvote one that is wrong
UNSURE = 0.8
SMALLEST_CLUSTER = 5
MOST_CLUSTERS = 3
MOST_PICTURES = 6
MUCH_UNCOVERED = 0.02
MUCH_DEAD = 0.2
MUCH_LOST = 0.05
SLOW_CENTERS = 0.1  # results/lost_lfs.json
ONE_VOICE = 1.5  # independent LFs; the specialists of a class are worth at least one
RARE = 0.25  # of the share that the given labels suggest
STILL_RISING = 0.03  # in the last fifth of training


@dataclass(frozen=True)
class Advice:
    title: str
    text: str
    pictures: list[Picture] = field(default_factory=list)


def advise(contents: RunContents, lfs: LFStatistics | None) -> list[Advice]:
    """The most useful first; empty where nothing stands out."""
    labels = contents.labels
    advice = [*_not_learnt(contents, labels), *_few_steps(contents)] if labels is not None else []
    if labels is not None and not advice:  # what a run that has not learnt believes of single images is noise
        advice += [*_suspected_errors(contents), *_told_apart_by_size(contents), *_unexplained_kinds(contents)]
        advice += [*_unsure_pairs(contents, labels), *_rare_classes(contents, labels)]
    if lfs is not None:
        advice += [*_one_voice(lfs), *_few_specialists(contents, lfs), *_lost_lfs(contents, lfs), *_idle_lfs(lfs)]
    return [*advice, *_uncovered(contents), *_training_cut_short(contents)]


def _not_learnt(contents: RunContents, labels: Labels) -> Iterator[Advice]:
    confidence = float(labels.confidence.mean())
    if confidence < NOT_LEARNT:
        settings = contents.config.labeling
        yield Advice(
            "Do not use these labels yet",
            f"Their mean confidence is {percent(confidence)}: the run has not learnt the classes. Train longer "
            f"(--steps {2 * settings.steps}), or give more labels of each class.",
        )


def _few_steps(contents: RunContents) -> Iterator[Advice]:
    steps = contents.config.labeling.steps
    if contents.had_few_steps:
        yield Advice(
            "Look at the labels before you use them",
            f"The run had {steps:,} steps, which are few for such pictures: it may be sure of labels that are no "
            "better than chance. The pictures of each class below show whether it is. Train longer "
            f"(--steps {4 * steps}), on a GPU where they are photographs.",
        )


def _correct_and_go_on(contents: RunContents) -> str:
    """How a person's labels reach the next run: only runs of DP-SSL are refined."""
    if contents.config.baseline.method == DP_SSL:
        return "with dpssl review, then go on with dpssl refine"
    return "and train again with them among the given ones"


def _suspected_errors(contents: RunContents) -> Iterator[Advice]:
    """Labelled images of which the label model believes something else than they were given."""
    assert contents.soft_labels is not None
    labeled, given = contents.split.labeled, contents.split.given_labels
    rows = labeled[contents.soft_labels.covered[labeled]]
    believed = contents.soft_labels.soft_labels[rows]
    of_given = believed[np.arange(len(rows)), given[rows]]
    doubted = np.flatnonzero((believed.max(axis=1) >= BELIEVED) & (believed.argmax(axis=1) != given[rows]))
    if not len(doubted):
        return
    worst_first = doubted[np.argsort(of_given[doubted], kind="stable")]
    names = contents.class_names
    yield Advice(
        f"Check {_count(len(doubted), 'label')} that you gave",
        "The run learnt from these labels and still believes something else of the images, "
        f"so a slip is likely. Correct it {_correct_and_go_on(contents)}.",
        [
            picture(
                contents,
                int(rows[at]),
                (
                    f"given {shown(names[given[rows[at]]])}",
                    f"rather {probability(believed[at].max())} {shown(names[believed[at].argmax()])}",
                ),
            )
            for at in worst_first[:MOST_PICTURES]
        ],
    )


def _told_apart_by_size(contents: RunContents) -> Iterator[Advice]:
    """Pairs of classes that change places as images are shown larger and smaller (dpssl.end_model.sizes)."""
    again = f" {AGAINST_SIZE}" if contents.config.augment.zoom == 1 else ""
    for pair in (contents.summary.get("told_apart_by_size") or [])[:MOST_CLUSTERS]:
        near, far = (short(contents.class_names[pair[place]], 30) for place in ("near", "far"))
        yield Advice(
            f"Do not rely on {near} against {far} yet",
            f"They seem to be told apart by how much of the picture they fill: enlarged by a third, "
            f"{percent(pair['enlarged'])} of what the end model calls {far} becomes {near}, and made smaller, "
            f"{percent(pair['smaller'])} of {near} becomes {far}. Label a few of {near} seen whole and a few of {far} "
            f"seen from near {_correct_and_go_on(contents)}.{again}",
        )


def _unexplained_kinds(contents: RunContents) -> Iterator[Advice]:
    """Kinds of image that look like no other of their class (dpssl.audit.unexplained_kinds)."""
    for kind in (contents.summary.get("unexplained_kinds") or [])[:MOST_CLUSTERS]:
        name = short(contents.class_names[kind["label"]], 30)
        rows = np.flatnonzero(np.isin(contents.dataset.ids, kind["ids"]))
        yield Advice(
            f"Look at a kind of image called {name} that looks like no other {name}",
            f"It is {percent(kind['share'])} of what the run calls {name}. Of the images that were next to it before "
            f"any label was learnt only {percent(kind['explained'])} are called so. As a whole it may belong to "
            f"another class, and the run would be sure of it all the same. Label some {_correct_and_go_on(contents)}, "
            "or train again with --repeat and let dpssl combine leave them out (--unexplained 0.1).",
            [picture(contents, int(row), (f"called {name}",)) for row in rows[:MOST_PICTURES]],
        )


def _unsure_pairs(contents: RunContents, labels: Labels) -> Iterator[Advice]:
    """Images that hang between the same two classes."""
    unsure = np.flatnonzero(labels.confidence < UNSURE)
    if len(unsure) < SMALLEST_CLUSTER:
        return
    best = np.sort(np.argpartition(labels.soft_labels[unsure], -2, axis=1)[:, -2:], axis=1)  # (u, 2)
    counts = Counter(map(tuple, best.tolist()))
    for (one, other), count in counts.most_common(MOST_CLUSTERS):
        if count < SMALLEST_CLUSTER:
            return
        members = unsure[(best == (one, other)).all(axis=1)]
        least_sure_first = members[np.argsort(labels.confidence[members], kind="stable")]
        names = [short(contents.class_names[label], 30) for label in (one, other)]
        yield Advice(
            f"Label a few images between {names[0]} and {names[1]}",
            f"{_count(count, 'image')} hang between the two with a confidence below {100 * UNSURE:.0f} %. A handful of "
            "labels among them, of both classes, given with dpssl review, tells the next run most.",
            pictures(contents, labels, least_sure_first[:MOST_PICTURES]),
        )


def _rare_classes(contents: RunContents, labels: Labels) -> Iterator[Advice]:
    rare = np.flatnonzero(labels.counts < RARE * len(labels.rows) / len(labels.counts))
    if len(rare):
        names = joined([short(contents.class_names[label], 30) for label in rare])
        yield Advice(
            f"Are there really so few of {names}?",
            f"Fewer than a quarter of an even share of the images got {'it' if len(rare) == 1 else 'each of them'}. "
            "If the images should hold more, add labels of it that look different from those given.",
        )


def _one_voice(lfs: LFStatistics) -> Iterator[Advice]:
    """Agreement among LFs that err together is no evidence, and no label model can tell that from skill."""
    backed = (lfs.specialties.sum(axis=0) >= FEW_SPECIALISTS) & (lfs.effective_lfs > 0)  # 0: nobody votes for it
    if backed.any() and np.median(lfs.effective_lfs[backed]) < ONE_VOICE:
        yield Advice(
            "Trust the confidence less than it asks for",
            f"The {lfs.specialties.sum(axis=0)[backed].mean():.0f} specialists of a class say nearly the same and are "
            f"worth {np.median(lfs.effective_lfs[backed]):.1f} independent ones. That they agree tells little, and the "
            "labels are surer than they should be: look at the pictures of each class before you use them.",
        )


def _few_specialists(contents: RunContents, lfs: LFStatistics) -> Iterator[Advice]:
    alive = lfs.coverage > 0
    counts = lfs.specialties[alive].sum(axis=0)
    few = np.flatnonzero(counts < FEW_SPECIALISTS)
    if len(few):
        names = joined([short(contents.class_names[label], 30) for label in few])
        settings = contents.config.labeling
        yield Advice(
            f"Too few specialists for {names}",
            f"Fewer than {FEW_SPECIALISTS} living labeling functions may name "
            f"{'it' if len(few) == 1 else 'each of them'}, so one that errs is not outvoted. Try "
            f"--min-specialists {max(FEW_SPECIALISTS, settings.min_specialists + 1)} or --n-lfs {2 * settings.n_lfs}.",
        )


def _lost_lfs(contents: RunContents, lfs: LFStatistics) -> Iterator[Advice]:
    """LFs that have learnt to abstain from everything: most often their centre has left the images' features."""
    settings, n_lfs, n_lost = contents.config.labeling, len(lfs.coverage), len(lfs.lost)
    if n_lost <= MUCH_LOST * n_lfs:
        return
    if settings.feature_transform and settings.center_rate > SLOW_CENTERS:
        why = (
            "as happens where the centre of one (Eq. 3) has left all images. "
            f"--center-rate {SLOW_CENTERS:g} lets centres move more slowly."
        )
    else:
        why = f"and the others label without them: --n-lfs {max(3, n_lfs - n_lost)} trains faster."
    yield Advice(
        f"{_count(n_lost, 'labeling function')} died in training",
        f"Of {n_lfs}, so many have classes to vote for and never vote, {why}",
    )


def _idle_lfs(lfs: LFStatistics) -> Iterator[Advice]:
    n_lfs, n_idle = len(lfs.coverage), len(lfs.dead) - len(lfs.lost)
    n_copies = sum(len(group) - 1 for group in lfs.copies)
    if n_idle + n_copies > MUCH_DEAD * n_lfs:
        yield Advice(
            "Many labeling functions add nothing",
            f"Of {n_lfs}, {n_idle} have no class and {n_copies} repeat another. Fewer of them train faster "
            f"(--n-lfs {max(3, n_lfs - n_idle - n_copies)}), and a larger --specialist-ratio gives classes to more.",
        )


def _uncovered(contents: RunContents) -> Iterator[Advice]:
    coverage = contents.summary.get("coverage")
    if coverage is not None and 1 - coverage > MUCH_UNCOVERED:
        yield Advice(
            f"{percent(1 - coverage)} of the images have no vote",
            "No labeling function knows them, so they got no label. They may belong to no class, or look unlike every "
            "label given: label a few of them, or train longer with --steps.",
        )


def _training_cut_short(contents: RunContents) -> Iterator[Advice]:
    rates = [line["pseudo_label_rate"] for line in contents.log if line.get("pseudo_label_rate") is not None]
    if len(rates) < 5:
        return
    gain = rates[-1] - rates[-1 - len(rates) // 5]
    if gain > STILL_RISING:
        yield Advice(
            "Train longer",
            f"The share of sure predictions still rose by {percent(gain)} in the last fifth of step 1, to "
            f"{percent(rates[-1])}. Try --steps {2 * contents.config.labeling.steps}.",
        )


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"

"""Step 2 for sources that were made apart, such as whole runs: soft labels of each in, those of all together out.

    P(y | image) ∝ Π_r P_r(y | image)^(w_r / Σ w)           over the sources r that speak of the image

The logarithmic opinion pool (Genest and Zidek, 1986): a class must be likely to all. Where two sure sources disagree
neither wins. The exponents add up to 1, since sources that learnt from the same labels are not independent.

Votes of one network err together, and a label model that counts each of them as a witness believes the larger crowd.
So each source is resolved by itself first; what it says then counts once.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.label_model.votes import Floats

FLOOR = 0.5  # of an even share, by class: a class that is hard to tell from another is not left without labels
LOST = 0.5  # of a class's share: a source that gives it to fewer images has lost it; docs/combine.md
TAKEN = 0.1  # of what others call so: a class to which the source gives as much has taken it in
TIED = 1e-9  # log-odds that are rounding
TINY = 1e-12  # a source that is certain can still be outvoted


def common_labels(soft_labels: NDArray[Any], weight: NDArray[Any]) -> Floats:
    """P(y | image), (n, C), from soft labels (R, n, C) and weights (R, n), 0 where a source has nothing to say.

    An image of which no source speaks gets the mean of their class shares.
    """
    share = np.where(weight.any(0), weight, 1.0)  # (R, n)
    share /= share.sum(0)
    log_proba = np.zeros(soft_labels.shape[1:])
    for source, exponent in zip(soft_labels, share, strict=True):
        log_proba += exponent[:, None] * np.log(np.maximum(source, TINY))
    proba = np.exp(log_proba - log_proba.max(axis=1, keepdims=True))
    return np.asarray(proba / proba.sum(axis=1, keepdims=True))


def without_say(soft_labels: NDArray[Any], pairs: Iterable[tuple[int, int]]) -> NDArray[Any]:
    """The same soft labels (n, C) of a source that is not to be asked which class of a pair it is.

    What it gives to both is given to each in equal parts, so that it still says that it is one of the two; pairs that
    share a class are taken together.
    """
    together = taken_together(pairs, soft_labels.shape[1])
    return np.asarray(soft_labels @ (together / together.sum(axis=0)))


def lost_pairs(labels: NDArray[np.int64], shares: Floats) -> list[list[tuple[int, int]]]:
    """For each source the pairs of a class that it has lost and one that it has taken it for.

    From what the sources say, (R, n), -1 where one says nothing, and the known shares of the classes, (C,). What
    another source calls so may be wrong: only a class that has more than its share can have taken another in.
    """
    n_classes, found = len(shares), []
    for place, of_source in enumerate(labels):
        pairs: set[tuple[int, int]] = set()
        speaks = of_source >= 0
        share = np.bincount(of_source[speaks], minlength=n_classes) / max(1, speaks.sum())
        for lost in np.flatnonzero(share < LOST * shares).tolist():
            others = (np.delete(labels, place, axis=0) == lost).any(axis=0)
            taken = np.bincount(of_source[others & speaks], minlength=n_classes)
            taken_in = (taken >= max(1, TAKEN * taken.sum())) & (share > shares)
            pairs |= {(min(lost, other), max(lost, other)) for other in np.flatnonzero(taken_in).tolist()}
        found.append(sorted(pairs))
    return found


def left_to_some(pairs: Sequence[Sequence[tuple[int, int]]], n_classes: int) -> list[list[tuple[int, int]]]:
    """The pairs of each source but for those that no source would have a say about, and what is joined to them."""
    together = np.stack([taken_together(of_source, n_classes) for of_source in pairs])  # (R, C, C)
    left_to_none = together.all(axis=0).sum(axis=1) > 1  # (C,)
    heard = (together & left_to_none).any(axis=2)  # (R, C) what is joined to these
    return [[pair for pair in of_source if not of_all[pair[0]]] for of_source, of_all in zip(pairs, heard, strict=True)]


def taken_together(pairs: Iterable[tuple[int, int]], n_classes: int) -> NDArray[np.bool_]:
    """(C, C) true for classes that are the same, a pair, or joined by a chain of pairs."""
    group = np.arange(n_classes)
    for one, other in pairs:
        group[group == group[other]] = group[one]
    return np.asarray(group[:, None] == group)


def surest(soft_labels: Floats, n_sources: NDArray[Any], n_wanted: int) -> NDArray[np.int64]:
    """`n_wanted` rows of soft labels (n, C), ascending, that `n_sources` (n,) are surest of.

    By the log-odds of the first class over the second, times the number of sources that speak; rows that are equally
    sure are taken from all classes alike. The surest of each class until it has FLOOR of its share, then those of all.
    Rows whose first two classes are tied are not chosen, so there may be fewer.
    """
    first_two = -np.partition(-soft_labels, 1, axis=1)[:, :2]
    odds = n_sources * (np.log(first_two[:, 0]) - np.log(np.maximum(first_two[:, 1], np.finfo(float).tiny)))
    label = soft_labels.argmax(1)
    n_rows, n_classes = soft_labels.shape
    chosen = np.zeros(n_rows, dtype=np.bool_)
    place = np.zeros(n_rows)  # in its class, from 0 (the surest) to 1
    for c in range(n_classes):
        members = np.flatnonzero(label == c)
        members = members[np.argsort(-odds[members], kind="stable")]
        place[members] = np.arange(len(members)) / max(1, len(members))
        chosen[members[: int(FLOOR * n_wanted * len(members) / max(1, n_rows))]] = True
    order = np.lexsort((place, -odds, ~chosen))
    return np.sort(order[odds[order] > TIED][:n_wanted])

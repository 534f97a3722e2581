"""Step 2 for sources that were made apart, such as whole runs: soft labels of each in, those of all together out.

    P(y | image) ∝ Π_r P_r(y | image)^(w_r / Σ w)           over the sources r that speak of the image

The logarithmic opinion pool (Genest and Zidek, 1986): a class must be likely to all. Where two sure sources disagree
neither wins. The exponents add up to 1, since sources that learnt from the same labels are not independent.

Votes of one network err together, and a label model that counts each of them as a witness believes the larger crowd.
So each source is resolved by itself first; what it says then counts once.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.label_model.votes import Bools, Floats

FLOOR = 0.5  # of an even share, by class: a class that is hard to tell from another is not left without labels
TINY = 1e-12  # a source that is certain can still be outvoted


def common_labels(soft_labels: NDArray[Any], covered: Bools, weight: Floats | None = None) -> Floats:
    """P(y | image), (n, C), from soft labels (R, n, C), which of them rest on a vote (R, n), and weights (R,).

    An image of which no source speaks gets the mean of their class shares.
    """
    weights = np.ones(len(soft_labels)) if weight is None else weight
    speaks = np.where(covered.any(0), covered, True) * weights[:, None]  # (R, n)
    log_proba = np.zeros(soft_labels.shape[1:])
    for source, share in zip(soft_labels, speaks / speaks.sum(0), strict=True):
        log_proba += share[:, None] * np.log(np.maximum(source, TINY))
    proba = np.exp(log_proba - log_proba.max(axis=1, keepdims=True))
    return np.asarray(proba / proba.sum(axis=1, keepdims=True))


def surest(soft_labels: Floats, n_wanted: int) -> NDArray[np.int64]:
    """`n_wanted` rows of soft labels (n, C), ascending, by the odds of the first class over the second.

    The surest of each class until every class has FLOOR of its share, then the surest of all.
    """
    first_two = -np.partition(-soft_labels, 1, axis=1)[:, :2]
    label = soft_labels.argmax(1)
    odds = np.log(first_two[:, 0]) - np.log(np.maximum(first_two[:, 1], np.finfo(float).tiny))
    n_rows, n_classes = soft_labels.shape
    chosen = np.zeros(n_rows, dtype=np.bool_)
    for c in range(n_classes):
        members = np.flatnonzero(label == c)
        n_least = int(FLOOR * n_wanted / max(1, n_rows) * len(members))
        chosen[members[np.argsort(-odds[members], kind="stable")][:n_least]] = True
    rest = np.argsort(-np.where(chosen, -np.inf, odds), kind="stable")
    chosen[rest[: n_wanted - int(chosen.sum())]] = True
    return np.flatnonzero(chosen)

"""The class shares that a run assumes (`--class-prior`), from the setting and the given labels, never from the truth.

`estimated` leaves them to the label model, which learns them from the votes; step 1, which has no votes yet, then
aligns to the shares of the given labels. `labels` takes those shares for both, `uniform` equal ones, and numbers are
shares (or counts) in the order of the classes.
"""

import numpy as np
from numpy.typing import NDArray

from dpssl.errors import InputError

Shares = NDArray[np.float64]  # (C,), positive, sum to 1

ESTIMATED, FROM_LABELS, UNIFORM = "estimated", "labels", "uniform"


def class_prior(setting: str, given_labels: NDArray[np.int64], n_classes: int) -> Shares | None:
    """(C,) shares that sum to 1, or None where they are to be estimated. `given_labels` (n,) has -1 for unlabelled."""
    if setting == ESTIMATED:
        return None
    if setting == UNIFORM:
        return np.full(n_classes, 1 / n_classes)
    if setting != FROM_LABELS:
        return _given_shares(setting, n_classes)
    shares = label_shares(given_labels, n_classes)
    if not shares.all():
        raise InputError(
            f"--class-prior {FROM_LABELS}: class {int(shares.argmin())} has no label to take its share from; give "
            f"labels of every class, or choose {ESTIMATED} or {UNIFORM}"
        )
    return shares


def alignment_prior(setting: str, given_labels: NDArray[np.int64], n_classes: int) -> Shares:
    """What predictions are aligned to while there is no label model yet whose estimate could be asked."""
    shares = class_prior(setting, given_labels, n_classes)
    return label_shares(given_labels, n_classes) if shares is None else shares


def label_shares(given_labels: NDArray[np.int64], n_classes: int) -> Shares:
    """Shares of the classes among the given labels."""
    counts = np.bincount(given_labels[given_labels >= 0], minlength=n_classes)
    return np.asarray(counts / max(1, counts.sum()))


def check_class_prior(setting: str) -> None:
    """That it is a word or numbers; how many there must be is known with the data."""
    if setting not in (ESTIMATED, FROM_LABELS, UNIFORM):
        _numbers(setting)


def _given_shares(setting: str, n_classes: int) -> Shares:
    shares = _numbers(setting)
    if len(shares) != n_classes:
        raise InputError(f"--class-prior {setting!r}: has {len(shares)} numbers for {n_classes} classes; give one each")
    return np.asarray(shares / shares.sum())


def _numbers(setting: str) -> Shares:
    try:
        shares = np.array([float(word) for word in setting.replace(",", " ").split()])
    except ValueError:
        shares = np.empty(0)
    if not shares.size or not np.isfinite(shares).all() or (shares <= 0).any():
        raise InputError(
            f"--class-prior {setting!r}: choose {ESTIMATED}, {FROM_LABELS} or {UNIFORM}, or give a number above 0 for "
            "each class, such as 0.7,0.2,0.1"
        )
    return shares

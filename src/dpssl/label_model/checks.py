"""Step 2's input, checked: votes in any form a user has them become one (n, K) integer array, -1 = abstain.

Every check names the row or argument, the value met, and what to do.

Scipy sparse matrices: every *stored* entry is a vote and its value is the class, so class 0 is a stored zero; what is
not stored is an abstention. Shifting classes by one would avoid stored zeros but would give 0 and -1 two meanings in
one package. Do not call `eliminate_zeros()` on such a matrix.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN, UNLABELED
from dpssl.errors import InputError
from dpssl.label_model.given_votes import as_vote_table
from dpssl.label_model.votes import Bools, Floats, Votes, count_votes, vote_dtype

LARGEST_TABLE = 1 << 28  # numbers in one table: 2 GiB of float64


@dataclass(frozen=True)
class VoteData:
    """What a model is fitted on, checked: every array has the shape and range that its comment says."""

    votes: Votes  # (n, K) -1 … C - 1
    n_classes: int
    y: NDArray[np.int64]  # (n,) -1 where unlabelled
    specialties: Bools  # (K, C); every vote lies inside
    n_votes: NDArray[np.int64]  # (K, C) how often each LF votes for each class
    sample_weight: Floats  # (n,) ≥ 0
    confidence: NDArray[np.float32] | None = None  # (n, K) in 0 … 1
    class_balance: Floats | None = None  # (C,) given class shares
    given_rows: NDArray[np.int64] | None = None  # (n,) where they stood among the rows given; None: all, in order

    @property
    def dead_lfs(self) -> list[int]:
        """LFs that never vote."""
        return [int(lf) for lf in np.flatnonzero(self.n_votes.sum(1) == 0)]

    @property
    def unvoted_classes(self) -> list[int]:
        """Classes that nothing votes for."""
        return [int(label) for label in np.flatnonzero(self.n_votes.sum(0) == 0)]

    def take(self, rows: NDArray[np.int64], weight: Floats) -> "VoteData":
        """Some of the rows, with other weights."""
        return replace(
            self,
            votes=self.votes[rows],
            y=self.y[rows],
            sample_weight=weight,
            confidence=None if self.confidence is None else self.confidence[rows],
            given_rows=rows if self.given_rows is None else self.given_rows[rows],
        )


def check_vote_data(
    votes: Any,
    n_classes: Any,
    y: Any = None,
    confidence: Any = None,
    specialties: Any = None,
    class_balance: Any = None,
    sample_weight: Any = None,
) -> VoteData:
    """All inputs of `fit`, checked; InputError names the first that is unusable."""
    n_classes = check_n_classes(n_classes)
    votes = check_votes(votes, n_classes)
    n_votes = count_votes(votes, n_classes)
    return VoteData(
        votes=votes,
        n_classes=n_classes,
        y=check_labels(y, len(votes), n_classes),
        specialties=check_specialties(specialties, votes, n_votes),
        n_votes=n_votes,
        sample_weight=check_sample_weight(sample_weight, len(votes)),
        confidence=check_confidence(confidence, votes, n_classes),
        class_balance=check_class_balance(class_balance, n_classes),
    )


def leave_out_weightless(data: VoteData, specialties_given: bool) -> VoteData:
    """Without the rows of weight 0, whose votes do not tell an LF's specialties either."""
    rows = np.flatnonzero(data.sample_weight > 0)
    if len(rows) == len(data.votes):
        return data
    data = data.take(rows, data.sample_weight[rows])
    n_votes = count_votes(data.votes, data.n_classes)
    return replace(data, n_votes=n_votes, specialties=data.specialties if specialties_given else n_votes > 0)


def check_table_size(variant: str, *shape: int) -> None:
    """Refuse a table of parameters that would not fit into memory, and name what works."""
    if math.prod(shape) > LARGEST_TABLE:
        raise InputError(
            f"variant {variant!r} would need a table of {' x '.join(map(str, shape))} numbers; "
            "use variant 'specialist-vote' or 'majority' for so many classes or labeling functions"
        )


def check_n_classes(n_classes: Any) -> int:
    """The number of classes as an int of at least 2."""
    if isinstance(n_classes, bool) or not isinstance(n_classes, int | np.integer) or n_classes < 2:
        raise InputError(f"n_classes is {n_classes!r}; give the number of classes, an integer of at least 2")
    return int(n_classes)


def check_votes(votes: Any, n_classes: int) -> Votes:
    """Votes as a dense (n, K) integer array with values in -1 … n_classes - 1.

    Takes what `as_vote_table` takes; an array or memory map is used without a copy where it has the right type.
    """
    table = as_vote_table(votes)
    if table.class_names is not None and len(table.class_names) != n_classes:
        raise InputError(f"the votes name {len(table.class_names)} classes, but n_classes is {n_classes}")
    array = _dense(table.votes, n_classes) if hasattr(table.votes, "tocsr") else table.votes
    if array.ndim != 2:
        raise InputError(
            f"votes have shape {array.shape}; give a matrix: a row per sample, a column per labeling function"
        )
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise InputError(f"votes are empty (shape {array.shape}); give at least one row and one labeling function")
    if array.dtype.kind not in "iuf":
        raise InputError(f"votes have type {array.dtype}; give class numbers 0 to {n_classes - 1}, with -1 for abstain")
    if array.dtype.kind == "f":
        _check_whole_numbers(array)
    low, high = array.min(), array.max()
    if low < ABSTAIN or high >= n_classes:
        row, lf = np.argwhere((array < ABSTAIN) | (array >= n_classes))[0]
        raise InputError(
            f"row {row} has the vote {array[row, lf]:g} from labeling function {lf}; votes are -1 (abstain) or "
            f"0 to {n_classes - 1}: correct the vote, or raise n_classes"
        )
    return array.astype(vote_dtype(n_classes), copy=False)


def _check_whole_numbers(array: NDArray[Any]) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        row, lf = np.argwhere(~finite)[0]
        raise InputError(
            f"row {row} has the vote {array[row, lf]} from labeling function {lf}; write -1 where it abstains"
        )
    whole = array == np.floor(array)
    if not whole.all():
        row, lf = np.argwhere(~whole)[0]
        raise InputError(
            f"row {row} has the vote {array[row, lf]:g} from labeling function {lf}; votes are whole class numbers "
            "(probabilities go into `confidence`)"
        )


def _dense(votes: Any, n_classes: int) -> NDArray[Any]:
    """A sparse matrix as a dense one; a stored entry is a vote, a stored zero the vote for class 0."""
    entries = votes.tocoo()
    cells = entries.row.astype(np.int64) * votes.shape[1] + entries.col
    if len(np.unique(cells)) != len(cells):
        raise InputError("the sparse votes store one cell twice; call sum_duplicates() only if adding votes is right")
    values = entries.data
    # Out-of-range values must survive until check_votes can name them, so the small type is used only if all fit.
    fits = not len(values) or (values.min() >= ABSTAIN and values.max() < n_classes and values.dtype.kind in "iu")
    dense = np.full(votes.shape, ABSTAIN, dtype=vote_dtype(n_classes) if fits else values.dtype)
    dense[entries.row, entries.col] = values
    return dense


def check_labels(y: Any, n_rows: int, n_classes: int) -> NDArray[np.int64]:
    """Known labels of the rows, (n,) with -1 where unknown; all unknown when y is None."""
    if y is None:
        return np.full(n_rows, UNLABELED, dtype=np.int64)
    array = np.asarray(y)
    if array.shape != (n_rows,):
        raise InputError(
            f"y has shape {array.shape} for {n_rows} rows of votes; give one label per row, -1 = unlabelled"
        )
    if array.dtype.kind not in "iuf" or (array.dtype.kind == "f" and not np.array_equal(array, np.floor(array))):
        raise InputError(f"y has type {array.dtype} or fractions; give class numbers, with -1 for unlabelled rows")
    bad = (array < UNLABELED) | (array >= n_classes)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError(f"y[{row}] is {array[row]:g}; labels are 0 to {n_classes - 1}, or -1 for unlabelled rows")
    return array.astype(np.int64)


def check_class_balance(class_balance: Any, n_classes: int) -> Floats | None:
    """Given class shares, (C,) positive and summing to 1."""
    if class_balance is None:
        return None
    array = np.asarray(class_balance, dtype=np.float64)
    if array.shape != (n_classes,):
        raise InputError(f"class_balance has shape {array.shape}; give {n_classes} numbers, one per class")
    if not np.isfinite(array).all() or (array < 0).any() or abs(array.sum() - 1.0) > 1e-6:
        raise InputError(
            f"class_balance is {array.tolist()} (sum {array.sum():g}); give shares of at least 0 that sum to 1"
        )
    positive = np.maximum(array, 1e-12)  # a class of share 0 stays improbable, but its logarithm stays finite
    return np.asarray(positive / positive.sum())


def check_sample_weight(sample_weight: Any, n_rows: int) -> Floats:
    """Row weights, (n,) of at least 0; ones when None."""
    if sample_weight is None:
        return np.ones(n_rows)
    array = np.asarray(sample_weight, dtype=np.float64)
    if array.shape != (n_rows,):
        raise InputError(f"sample_weight has shape {array.shape} for {n_rows} rows of votes; give one weight per row")
    if not np.isfinite(array).all() or (array < 0).any() or array.sum() <= 0:
        raise InputError(
            "sample_weight has a negative, infinite or NaN entry, or sums to 0; give weights of at least 0"
        )
    return array


def check_specialties(specialties: Any, votes: Votes, n_votes: NDArray[np.int64]) -> Bools:
    """τ_k of every LF, (K, C) bool: as given (and no vote outside it), or every class the LF ever votes for."""
    n_lfs, n_classes = n_votes.shape
    used: Bools = n_votes > 0
    if specialties is None:
        return used
    array = np.asarray(specialties)
    if array.shape != (n_lfs, n_classes) or array.dtype.kind not in "bi":
        raise InputError(
            f"specialties have shape {array.shape} and type {array.dtype}; give ({n_lfs}, {n_classes}) booleans: "
            "may labeling function k vote for class c"
        )
    array = array.astype(bool)
    outside = used & ~array
    if outside.any():
        lf, label = np.argwhere(outside)[0]
        row = int(np.flatnonzero(votes[:, lf] == label)[0])
        raise InputError(
            f"row {row}: labeling function {lf} votes for class {label}, outside its specialties "
            f"{np.flatnonzero(array[lf]).tolist()}; add the class to specialties[{lf}] or remove the vote"
        )
    return array


def check_confidence(confidence: Any, votes: Votes, n_classes: int) -> NDArray[np.float32] | None:
    """The probability each LF gave to its own vote, (n, K) in 0 … 1, abstentions included; 0 where that is not known.

    A uint8 array counts in 255ths. Probabilities over all classes (n, K, C), or over all classes and abstain
    (n, K, C + 1), are read at the vote.
    """
    if confidence is None:
        return None
    array, silent = np.asarray(confidence), votes == ABSTAIN
    knows_silence = array.ndim != 3 or array.shape[2] == n_classes + 1
    if array.ndim == 3 and array.shape[:2] == votes.shape and array.shape[2] in (n_classes, n_classes + 1):
        at_vote = np.where(silent, array.shape[2] - 1, votes).astype(np.int64)[:, :, None]
        array = np.take_along_axis(array, at_vote, axis=2)[:, :, 0]
    if array.shape != votes.shape:
        raise InputError(f"confidence has shape {array.shape} but votes have {votes.shape}; give one number per vote")
    numbers = array.astype(np.float32)
    if array.dtype == np.uint8:
        numbers *= np.float32(1 / 255)
    bad = ~((numbers >= 0) & (numbers <= 1 + 1e-3))  # float16 probabilities round a little above 1
    if bad.any() and (bad & ~silent).any():
        row, lf = np.argwhere(bad & ~silent)[0]
        raise InputError(
            f"confidence[{row}, {lf}] is {array[row, lf]}; give the probability of that vote, between 0 and 1"
        )
    np.minimum(numbers, np.float32(1), out=numbers)
    numbers[silent & bad if knows_silence else silent] = 0
    return numbers

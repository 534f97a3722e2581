"""Step 2 in parts: rows of votes that several calls or workers counted, merged into what one fit would have seen.

Every model's result depends on the distinct rows (votes, labels, confidences) and on their weights alone, not on their
order, and a weight of m is m rows. So these are sufficient statistics of any of them: a worker tallies its shard,
tallies add up, and one fit follows.

    total = tally_votes(shard_1, n_classes) + tally_votes(shard_2, n_classes)
    LabelModel(n_classes).fit(total.votes, total.y, total.confidence, sample_weight=total.sample_weight)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.errors import InputError
from dpssl.label_model.checks import check_confidence, check_labels, check_n_classes, check_sample_weight, check_votes
from dpssl.label_model.one_hot import distinct_rows
from dpssl.label_model.votes import Floats, Votes

MOST_ROWS_TO_COMPARE = 5_000_000  # sorting more row hashes would cost more memory than the votes


@dataclass(frozen=True)
class VoteTally:
    """Rows and how often each counts; tallies of disjoint rows add up. Rows with confidences are never merged."""

    votes: Votes  # (m, K) -1 = abstain; identical rows once, where that saves a quarter of them
    y: NDArray[np.int64]  # (m,) -1 where unlabelled
    sample_weight: Floats  # (m,)
    confidence: NDArray[np.float32] | None = None  # (m, K)

    def __add__(self, other: "VoteTally") -> "VoteTally":
        if self.votes.shape[1] != other.votes.shape[1]:
            raise InputError(
                f"votes have {other.votes.shape[1]} columns, but those before had {self.votes.shape[1]}; "
                "give every labeling function a column in each part, -1 where it abstains"
            )
        if (self.confidence is None) != (other.confidence is None):
            raise InputError("confidence is given for some parts of the votes; give it for all of them or for none")
        return _count_once(
            VoteTally(
                np.concatenate([self.votes, other.votes]),
                np.concatenate([self.y, other.y]),
                np.concatenate([self.sample_weight, other.sample_weight]),
                None
                if self.confidence is None or other.confidence is None
                else np.concatenate([self.confidence, other.confidence]),
            )
        )


def tally_votes(
    votes: Any, n_classes: int, y: Any = None, confidence: Any = None, sample_weight: Any = None
) -> VoteTally:
    """Check, copy and count some rows of votes; the arguments are those of `LabelModel.fit`."""
    n_classes = check_n_classes(n_classes)
    checked = np.array(check_votes(votes, n_classes))  # the caller may fill the same array with the next rows
    return _count_once(
        VoteTally(
            checked,
            check_labels(y, len(checked), n_classes),
            np.array(check_sample_weight(sample_weight, len(checked))),
            check_confidence(confidence, checked, n_classes),
        )
    )


def rows_once(votes: Votes, y: NDArray[np.int64], sample_weight: Floats) -> tuple[NDArray[np.int64], Floats] | None:
    """One row of each group of identical ones and the group's weight; None where that saves less than a quarter."""
    if len(votes) > MOST_ROWS_TO_COMPARE:
        return None
    distinct = distinct_rows(votes, y)
    if len(distinct.first) > 0.75 * len(votes):
        return None
    return distinct.first, np.bincount(distinct.inverse, sample_weight, len(distinct.first)).astype(np.float64)


def _count_once(tally: VoteTally) -> VoteTally:
    once = rows_once(tally.votes, tally.y, tally.sample_weight) if tally.confidence is None else None
    if once is None:
        return tally
    first, weight = once
    return VoteTally(tally.votes[first], tally.y[first], weight)

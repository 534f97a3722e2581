"""Step 2, looking at votes and labels: the LF table and the reliability table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN, UNLABELED
from dpssl.label_model.checks import VoteData
from dpssl.label_model.votes import Bools, Floats, chunks


@dataclass(frozen=True)
class LFSummary:
    """One row per labeling function; `print(summary)` shows the table, `summary.to_dicts()` gives the rows."""

    n_votes: Floats  # (K,) votes given, rows weighted
    coverage: Floats  # (K,) share of the rows it votes on
    overlaps: Floats  # (K,) share of the rows it votes on together with another LF
    conflicts: Floats  # (K,) share of the rows it votes on where another LF says something else
    specialties: Bools  # (K, C)
    estimated_accuracy: Floats  # (K,) mean probability of its votes under the model; NaN for a dead LF
    standard_error: Floats  # (K,) sampling error of that mean; the model's own error comes on top
    labeled_accuracy: Floats  # (K,) share of its votes on labelled rows that are right; NaN without any
    n_labeled: Floats  # (K,) its votes on labelled rows
    lf_names: list[str] | None = None  # (K,) where the votes came with names
    class_names: list[str] | None = None  # (C,) likewise

    @property
    def dead(self) -> list[int]:
        """LFs that never vote."""
        return [int(lf) for lf in np.flatnonzero(self.n_votes == 0)]

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as plain values; None where there is no number. LFs and classes by name, where they have one."""
        rows = []
        for lf in range(len(self.n_votes)):
            numbers = {
                name: None if np.isnan(values[lf]) else float(values[lf])
                for name, values in vars(self).items()
                if isinstance(values, np.ndarray) and values.ndim == 1
            }
            classes = np.flatnonzero(self.specialties[lf]).tolist()
            rows.append(
                {
                    "lf": lf if self.lf_names is None else self.lf_names[lf],
                    "specialties": [self.class_names[label] for label in classes] if self.class_names else classes,
                    **numbers,
                }
            )
        return rows

    def __repr__(self) -> str:  # a notebook shows the table too
        return str(self)

    def __str__(self) -> str:
        header = ["LF", "classes", "coverage", "overlaps", "conflicts", "est. accuracy", "± s.e.", "on labelled"]
        lines, rows = [header], self.to_dicts()
        for row in rows:
            shares = [_percent(row[name]) for name in ("coverage", "overlaps", "conflicts", "estimated_accuracy")]
            labeled = f"{_percent(row['labeled_accuracy'])} of {row['n_labeled']:g}" if row["n_labeled"] else "-"
            lines.append(
                [str(row["lf"]), _class_list(row["specialties"]), *shares, _percent(row["standard_error"]), labeled]
            )
        widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
        table = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        if self.dead:
            table.append(f"never vote: {', '.join(str(rows[lf]['lf']) for lf in self.dead)}")
        return "\n".join(table)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _class_list(classes: list[Any]) -> str:
    shown = ",".join(map(str, classes[:6]))
    return f"{shown},… ({len(classes)})" if len(classes) > 6 else shown or "none"


def summarize_lfs(
    data: VoteData,
    predict_proba: Callable[[NDArray[Any], NDArray[Any] | None], Floats],
    soft_labels: Floats | None = None,
) -> LFSummary:
    """The LF table of the votes a model was fitted on.

    `predict_proba` gives that model's soft labels of some rows; `soft_labels` holds those of all rows that were given
    (see `VoteData.given_rows`), where they are known.
    """
    n_rows, n_lfs = data.votes.shape
    sums = np.zeros((6, n_lfs))
    for rows in chunks(n_rows, max(n_lfs, data.n_classes)):
        votes = data.votes[rows]
        if soft_labels is None:
            proba = predict_proba(votes, None if data.confidence is None else data.confidence[rows])
        else:
            proba = soft_labels[rows if data.given_rows is None else data.given_rows[rows]]
        sums += _count_rows(votes, data.y[rows], data.sample_weight[rows], proba)
    n_votes, overlaps, conflicts, expected_right, n_labeled, labeled_right = sums
    total = data.sample_weight.sum()
    accuracy = _ratio(expected_right, n_votes)
    # Truths are Bernoulli draws with the soft labels' probabilities: total variance = accuracy · (1 - accuracy).
    standard_error = np.sqrt(np.clip(accuracy * (1 - accuracy), 0, None) / np.where(n_votes > 0, n_votes, 1.0))
    return LFSummary(
        n_votes=n_votes,
        coverage=n_votes / total,
        overlaps=overlaps / total,
        conflicts=conflicts / total,
        specialties=data.specialties,
        estimated_accuracy=accuracy,
        standard_error=standard_error,
        labeled_accuracy=_ratio(labeled_right, n_labeled),
        n_labeled=n_labeled,
    )


def _count_rows(votes: NDArray[Any], y: NDArray[np.int64], weight: Floats, soft_labels: Floats) -> Floats:
    """Weighted counts per LF, (6, K): votes, overlaps, conflicts, expected right, on labelled rows, right there."""
    spoken = votes != ABSTAIN  # (n, K)
    n_spoken = spoken.sum(1, keepdims=True)
    highest = votes.max(1, keepdims=True)
    unanimous = (~spoken | (votes == highest)).all(1, keepdims=True)
    row = np.nonzero(spoken)[0]
    right = np.zeros(votes.shape)
    right[spoken] = soft_labels[row, votes[spoken]]
    labeled = spoken & (y != UNLABELED)[:, None]
    counted = (
        spoken,
        spoken & (n_spoken > 1),
        spoken & ~unanimous,
        right,
        labeled,
        labeled & (votes == y[:, None]),
    )
    return np.stack([weight @ values for values in counted])


def _ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> Floats:
    """numerator / denominator, NaN where there is nothing to divide by."""
    return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1.0), np.nan)


@dataclass(frozen=True)
class ReliabilityTable:
    """Do labels of confidence p turn out right with probability p? Rows are bins of the largest class probability."""

    count: NDArray[np.int64]  # (bins,)
    confidence: Floats  # (bins,) mean confidence; NaN in an empty bin
    accuracy: Floats  # (bins,) share that is right
    ece: float  # expected calibration error: mean |accuracy - confidence| over the rows
    log_loss: float
    brier: float

    def __str__(self) -> str:
        n_bins = len(self.count)
        lines = ["confidence    rows   mean    right"]
        for b in np.flatnonzero(self.count):
            span = f"{b / n_bins:.2f}–{(b + 1) / n_bins:.2f}"
            lines.append(f"{span}  {self.count[b]:>7}  {self.confidence[b]:.3f}  {self.accuracy[b]:.3f}")
        lines.append(f"ECE {self.ece:.3f}   log-loss {self.log_loss:.3f}   Brier {self.brier:.3f}")
        return "\n".join(lines)


def reliability_table(soft_labels: Floats, y: NDArray[Any], n_bins: int = 15) -> ReliabilityTable:
    """The table over the rows whose truth is known (y ≠ -1). Evaluation only."""
    known = np.asarray(y) != UNLABELED
    soft_labels, y = np.asarray(soft_labels, dtype=np.float64)[known], np.asarray(y)[known].astype(np.int64)
    confidence, right = soft_labels.max(1), soft_labels.argmax(1) == y
    bins = np.minimum((confidence * n_bins).astype(np.int64), n_bins - 1)
    count = np.bincount(bins, minlength=n_bins)
    mean_confidence = _ratio(np.bincount(bins, confidence, n_bins), count)
    accuracy = _ratio(np.bincount(bins, right, n_bins), count)
    gap = np.nan_to_num(np.abs(accuracy - mean_confidence))
    at_truth = soft_labels[np.arange(len(y)), y]
    brier = np.square(soft_labels).sum(1) - 2 * at_truth + 1  # Σ_c (p_c - 1(c = y))²
    n = max(1, len(y))
    return ReliabilityTable(
        count=count,
        confidence=mean_confidence,
        accuracy=accuracy,
        ece=float(count @ gap / n),
        log_loss=float(-np.log(np.maximum(at_truth, 1e-7)).sum() / n),
        brier=float(brier.sum() / n),
    )

"""Step 2: a bounded number of weighted rows that stand for all of them, so that EM costs the same at any size.

Identical rows are counted once. Where more distinct rows remain than a fit needs, a row is kept with probability
p = min(1, t · count) and weighs count / p (Horvitz–Thompson), so that sums over rows stay unbiased; frequent rows are
always kept. What decides is a hash of the row's content in which labeling functions are known by their vote counts,
not by their position: the choice is deterministic and depends on the order of neither rows nor LFs.

Three passes over chunks of the votes (count, find frequent rows, collect) and memory that grows with the labelled rows,
which are all kept, but not with n. Any array that can be sliced by rows will do, a memory map included.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import UNLABELED
from dpssl.label_model.one_hot import distinct_rows
from dpssl.label_model.votes import Floats, chunks

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

BUCKET_BITS = 20  # frequent rows are found by counting hashes in 2^20 buckets
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # increments and multipliers of SplitMix64 (Steele et al. 2014)
UP_FROM = 1 / np.pi  # added before rounding down: sums of round weights, exact or not, lie on no such border
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class WeightedRows:
    """Distinct rows and how many rows of the data each stands for."""

    outcomes: NDArray[Any]  # (m, K) -1 = abstain
    y: Ints  # (m,) -1 where unlabelled
    weight: Floats  # (m,)


def sample_rows(
    outcomes: NDArray[Any], n_outcomes: int, y: Ints | None, weight: Floats | None, n_rows: int
) -> WeightedRows:
    """About `n_rows` distinct rows or all of them, whichever is less; labelled rows are always kept.

    outcomes (n, K) with values in -1 … n_outcomes - 1; y (n,) or None; weight (n,) or None.
    """
    keys = _outcome_keys(outcomes, n_outcomes, weight)  # (K, n_outcomes + 1)
    n_buckets = 1 << BUCKET_BITS
    bucket_weight = np.zeros(n_buckets)
    for rows in chunks(*outcomes.shape):
        bucket_weight += np.bincount(_bucket(_row_hashes(outcomes[rows], keys)), _part(weight, rows), n_buckets)
    keep = _inclusion(bucket_weight, n_rows)  # (buckets,)
    draw = (_mix(np.arange(n_buckets, dtype=np.uint64)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    kept_bucket = draw < keep
    found: list[WeightedRows] = []
    for rows in chunks(*outcomes.shape):
        bucket = _bucket(_row_hashes(outcomes[rows], keys))
        part_y, part_weight = _part_labels(y, rows), _part(weight, rows)
        labeled = part_y != UNLABELED
        chosen = np.flatnonzero((kept_bucket[bucket] | labeled) & (part_weight > 0))
        expanded = part_weight / np.where(labeled, 1.0, np.maximum(keep[bucket], 1e-300))
        found.append(_merge(np.asarray(outcomes[rows])[chosen], part_y[chosen], expanded[chosen]))
        if sum(len(part.weight) for part in found) > 4 * n_rows:
            found = [_merge_all(found)]
    return _merge_all(found)


def _outcome_keys(outcomes: NDArray[Any], n_outcomes: int, weight: Floats | None) -> Hashes:
    """One random-looking number per LF and outcome; LFs with equal (weighted) vote counts share theirs."""
    n_lfs = outcomes.shape[1]
    counts = np.zeros((n_lfs, n_outcomes + 1))
    for rows in chunks(*outcomes.shape):
        part, part_weight = np.asarray(outcomes[rows]), _part(weight, rows)
        for k in range(n_lfs):
            counts[k] += np.bincount(part[:, k].astype(np.int64) + 1, part_weight, n_outcomes + 1)
    identity = np.zeros(n_lfs, dtype=np.uint64)
    for column in np.floor(counts.T + UP_FROM).astype(np.uint64):
        identity = _mix(identity + column)
    keys: Hashes = _mix(identity[:, None] + GOLDEN * np.arange(1, n_outcomes + 2, dtype=np.uint64))
    keys[:, 0] = 0  # an abstention adds nothing
    return keys


def _row_hashes(outcomes: NDArray[Any], keys: Hashes) -> Hashes:
    """Sum of the keys of a row's outcomes, mixed, (n,)."""
    hashes = np.zeros(len(outcomes), dtype=np.uint64)
    for k, column in enumerate(np.asarray(outcomes).T):
        hashes += keys[k][column.astype(np.int64) + 1]
    return _mix(hashes)


def _bucket(hashes: Hashes) -> Ints:
    return (hashes >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)


def _mix(value: Hashes) -> Hashes:
    """SplitMix64's finaliser: every bit of the input changes about half of the output's."""
    value = value + GOLDEN
    value = (value ^ (value >> np.uint64(30))) * MIX_1
    value = (value ^ (value >> np.uint64(27))) * MIX_2
    mixed: Hashes = value ^ (value >> np.uint64(31))
    return mixed


def _inclusion(bucket_weight: Floats, n_rows: int) -> Floats:
    """p = min(1, t · weight) per bucket, with t set so that about n_rows buckets are kept; all ones if they fit."""
    filled = bucket_weight[bucket_weight > 0]
    if len(filled) <= n_rows:
        return np.ones(len(bucket_weight))
    low, high = 0.0, 1.0 / float(filled.min())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1.0, middle * filled).sum() < n_rows else (low, middle)
    return np.minimum(1.0, high * bucket_weight)


def _part(weight: Floats | None, rows: slice) -> Floats:
    return np.ones(rows.stop - rows.start) if weight is None else np.asarray(weight[rows], dtype=np.float64)


def _part_labels(y: Ints | None, rows: slice) -> Ints:
    return np.full(rows.stop - rows.start, UNLABELED) if y is None else np.asarray(y[rows], dtype=np.int64)


def _merge(outcomes: NDArray[Any], y: Ints, weight: Floats) -> WeightedRows:
    distinct = distinct_rows(outcomes, y)
    merged = np.bincount(distinct.inverse, weight, len(distinct.first)).astype(np.float64)
    return WeightedRows(outcomes[distinct.first], y[distinct.first], merged)


def _merge_all(parts: list[WeightedRows]) -> WeightedRows:
    if len(parts) == 1:
        return parts[0]
    return _merge(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("outcomes", "y", "weight")))

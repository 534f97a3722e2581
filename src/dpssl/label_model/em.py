"""Step 2, the default model: expectation maximisation over weighted rows (see `adaptive` for the model).

An outcome is a vote with its step of confidence, v · S + s, or -1 for an abstention; S = 1 without confidences.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.label_model.class_votes import ClassVotes, count_class_votes
from dpssl.label_model.difficulty import (
    N_LEVELS,
    RowStates,
    SharedCounts,
    affords_difficulty,
    count_states,
    infer_states,
    log_normalizers,
    log_states,
    no_difficulty,
    starting_difficulty,
)
from dpssl.label_model.one_hot import OneHotVotes
from dpssl.label_model.row_sample import WeightedRows
from dpssl.label_model.vote_tables import (
    Columns,
    Counts,
    Tables,
    evidence_weights,
    prior_votes,
    table_parts,
    update_tables,
)
from dpssl.label_model.votes import Floats

Ints = NDArray[np.int64]

CLASS_ITERATIONS, CLASS_TOL = 50, 1e-4  # EM without difficulty; tol is log-likelihood per row
DIFFICULTY_ITERATIONS, DIFFICULTY_TOL = 15, 5e-4  # more fit the votes better and small sets worse
CHUNK_CELLS = 1 << 20  # rows · classes · levels handled at a time
STARTING_DOUBT = 0.3  # votes that every class has before the first is counted
DECIMALS = 10  # rounding noise of a posterior is dropped, so that the order of rows and LFs cannot grow from it


@dataclass(frozen=True)
class Model:
    """Tables, and what is decided about the LFs before they are learnt."""

    columns: Columns
    tables: Tables
    absence_weight: float  # κ
    lf_weight: Floats  # (K,) β


class SpokenVotes(OneHotVotes):
    """The same matrix from the columns of the spoken votes, row by row, without a dense array."""

    def __init__(self, indptr: Ints, columns: Ints, n_lfs: int, n_codes: int) -> None:
        self.n_rows, self.n_lfs, self.n_classes = len(indptr) - 1, n_lfs, n_codes
        self.indptr, self.columns = indptr, columns
        self._csr = self._build_csr()


@dataclass(frozen=True)
class Batch:
    """Some rows, ready for the E step."""

    one_hot: OneHotVotes
    votes: ClassVotes  # by class and step of confidence, weighted by β
    covered: NDArray[np.bool_]  # (n,) has a vote
    y: Ints  # (n,)
    weight: Floats  # (n,)


def make_batches(rows: WeightedRows, columns: Columns, lf_weight: Floats, n_steps: int) -> list[Batch]:
    """Rows of outcomes in batches of bounded size."""
    n_lfs, n_classes = columns.code.shape
    n_levels = N_LEVELS if affords_difficulty(n_classes, n_lfs) else 1
    size = max(1, CHUNK_CELLS // (n_classes * n_levels))
    starts = range(0, len(rows.weight), size)
    return [_make_batch(rows, slice(start, start + size), columns, lf_weight, n_steps) for start in starts]


def _make_batch(rows: WeightedRows, part: slice, columns: Columns, lf_weight: Floats, n_steps: int) -> Batch:
    """Every step touches spoken votes only; a class that the LF never named in the fit counts as an abstention."""
    outcomes = np.ascontiguousarray(rows.outcomes[part])
    (n, n_lfs), n_classes = outcomes.shape, columns.code.shape[1]
    spoken = np.flatnonzero(outcomes.ravel() != ABSTAIN)
    outcome, lf = outcomes.ravel()[spoken].astype(np.int64), spoken % n_lfs
    code = columns.code[lf, outcome // n_steps if n_steps > 1 else outcome]
    if (code < 0).any():
        spoken, outcome, lf, code = (values[code >= 0] for values in (spoken, outcome, lf, code))
    row = spoken // n_lfs
    votes_per_row = np.bincount(row, minlength=n)
    indptr = np.concatenate([[0], np.cumsum(votes_per_row)])
    one_hot = SpokenVotes(indptr, lf * columns.n_codes + code, n_lfs, columns.n_codes)
    class_votes = count_class_votes(n, n_classes, n_steps, row, outcome, lf_weight[lf])
    return Batch(one_hot, class_votes, votes_per_row > 0, rows.y[part], rows.weight[part])


def count_views(batches: Iterable[Batch]) -> float:
    """d: how many votes (in weights β) a vote meets on its row, itself included."""
    votes = squares = 0.0
    for batch in batches:
        per_row = batch.votes.total.sum(1)
        votes += float(batch.weight @ per_row)
        squares += float(batch.weight @ np.square(per_row))
    return squares / votes if votes > 0 else 0.0


def most_votes(batches: Iterable[Batch]) -> float:
    """The most votes (in weights β) that one class gets on one row."""
    return max(float(batch.votes.most.max(initial=0.0)) for batch in batches)


class EStep:
    """One set of parameters, ready to be applied to batches."""

    def __init__(self, model: Model) -> None:
        tables, self.difficulty = model.tables, model.tables.difficulty
        self.by_vote, self.silence = evidence_weights(tables, model.columns, model.absence_weight, model.lf_weight)
        normalizer = np.zeros(())
        if self.difficulty.look_alikes.shape[1]:
            by_lf = log_normalizers(self.difficulty, *table_parts(tables, model.columns))  # (K, C, M, H)
            normalizer = np.tensordot(model.lf_weight, by_lf, axes=1)
        self.states = log_states(self.difficulty, np.log(tables.balance), normalizer)

    def evidence(self, batch: Batch) -> Floats:
        """Σ_k log T_k of every row, (n, C)."""
        return batch.one_hot.sum_rows(self.by_vote) + self.silence

    def infer(self, batch: Batch) -> RowStates:
        """The posterior of a batch."""
        return infer_states(self.difficulty, self.states, self.evidence(batch), batch.votes, batch.y, batch.weight)

    def count(self, batches: Iterable[Batch]) -> Counts:
        """Expected counts over all batches."""
        return reduce(add, (self._count(batch) for batch in batches))

    def _count(self, batch: Batch) -> Counts:
        inferred = self.infer(batch)
        shared = count_states(self.difficulty, batch.votes, inferred)
        return _count(batch, inferred.joint.sum(0), shared, float(batch.weight @ inferred.log_likelihood))


def _count(batch: Batch, class_mass: Floats, shared: SharedCounts, log_likelihood: float) -> Counts:
    mass = class_mass.round(DECIMALS)
    return Counts(batch.one_hot.sum_columns(mass), mass.sum(0), batch.covered @ mass, shared, log_likelihood)


def start_model(
    batches: list[Batch], columns: Columns, absence_weight: float, lf_weight: Floats, class_balance: Floats | None
) -> Model:
    """Tables counted from vote shares, with the labels where there are any."""
    n_lfs, n_classes = columns.code.shape
    n_steps = batches[0].votes.total.shape[1]
    blank = Tables(
        np.full(n_classes, 1 / n_classes),
        np.zeros((len(columns.lf), n_classes)),
        np.zeros((n_lfs, n_classes)),
        no_difficulty(n_classes, n_steps),
    )
    nothing = SharedCounts(np.zeros((n_classes, 1, 1)), np.zeros((1, 3, n_steps)))
    counts = reduce(add, (_count(batch, _vote_share(batch), nothing, 0.0) for batch in batches))
    views = count_views(batches)
    tables = update_tables(counts, blank, columns, prior_votes(columns, views), class_balance, lf_weight)
    return Model(columns, tables, absence_weight, lf_weight)


def _vote_share(batch: Batch) -> Floats:
    """weight · the share of each class among the row's votes, or its label, (n, C)."""
    n_classes = batch.votes.n_classes
    share = batch.votes.times(batch.votes.count.sum(1), np.eye(n_classes)) + STARTING_DOUBT
    share /= share.sum(1, keepdims=True)
    known = np.flatnonzero(batch.y >= 0)
    share[known] = np.eye(n_classes)[batch.y[known]]
    return share * batch.weight[:, None]


@dataclass(frozen=True)
class Run:
    """What EM came to."""

    model: Model
    log_likelihood: float  # per row, of the last E step
    n_iter: int
    converged: bool


def run_em(
    model: Model,
    batches: list[Batch],
    class_balance: Floats | None,
    max_iter: int,
    tol: float,
    keep_tables: bool = False,
) -> Run:
    """EM until the log-likelihood per row gains less than tol; `keep_tables` as in `update_tables`."""
    total_weight = sum(float(batch.weight.sum()) for batch in batches)
    prior = prior_votes(model.columns, count_views(batches))
    previous, converged, n_iter = -np.inf, False, 0
    while n_iter < max_iter and not converged:
        counts = EStep(model).count(batches)
        tables = update_tables(counts, model.tables, model.columns, prior, class_balance, model.lf_weight, keep_tables)
        model = replace(model, tables=tables)
        log_likelihood = counts.log_likelihood / total_weight
        converged = abs(log_likelihood - previous) < tol
        previous, n_iter = log_likelihood, n_iter + 1
    return Run(model, previous, n_iter, converged)


def add_difficulty(model: Model) -> Model:
    """The same tables, with the shared difficulty at its start."""
    columns, tables = model.columns, model.tables
    n_lfs, n_classes = columns.code.shape
    rate = np.zeros((n_classes, n_classes))
    np.add.at(rate.T, columns.vote[columns.used], tables.says[columns.used])
    difficulty = starting_difficulty(rate, tables.difficulty.log_step, n_lfs)
    return replace(model, tables=replace(tables, difficulty=difficulty))


def predictive_score(model: Model, batches: Iterable[Batch]) -> float:
    """How well a row's other votes predict the class that a vote names: mean log P over votes that have company.

    P(v | the others) = Σ_y P(y | the others) · E(v | y), where E is what the LFs together say on class y: the question
    is which class is named, not by whom, or LFs that name one class each could not be scored.
    """
    columns, tables = model.columns, model.tables
    says = np.zeros((len(tables.balance), len(tables.balance)))  # (y, v)
    np.add.at(says.T, columns.vote[columns.used], tables.says[columns.used])
    says /= np.maximum(says.sum(1, keepdims=True), 1e-300)  # nobody may vote at all
    step = EStep(model)
    score = weight = 0.0
    for batch in batches:
        per_row = np.diff(batch.one_hot.indptr)
        row = np.repeat(np.arange(len(per_row)), per_row)
        company = per_row[row] > 1
        row, column = row[company], batch.one_hot.columns[company]
        log_joint = (step.evidence(batch) + step.states[:, 0, 0])[row] - step.by_vote[column]  # (votes, C)
        others = np.exp(log_joint - log_joint.max(1, keepdims=True))
        others /= others.sum(1, keepdims=True)
        predicted = np.einsum("ny,yn->n", others, says[:, columns.vote[column]])
        score += float(batch.weight[row] @ np.log(np.maximum(predicted, 1e-300)))
        weight += float(batch.weight[row].sum())
    return score / weight if weight else 0.0

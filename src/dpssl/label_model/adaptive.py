"""Step 2: our default label model. It adapts to what the votes are before it believes them.

    log P(row, y, ℓ, h) = log π_y + log a(ℓ | y) + log w_h
                          + Σ_k β_k [log P(v_k | speaks, y, ℓ, h) + κ log P(speaks or not | y, ℓ, h)]

Four questions are put to the votes, none to the truth:

1. What does an LF's vote mean? Tables T_k(v | y), shrunk to "all votes are equally accurate", that is to majority vote,
   the more the fewer votes meet on a row (`vote_tables`).
2. Is silence evidence? For labeling functions it is (κ = 1), for crowd workers it is absence (κ = 0). It is when most
   LFs are specialists, who leave classes to others; if not, κ = 1 must predict the class that a held-out vote names
   from the rest of its row clearly better than κ = 0 (`predictive_score`).
3. Who repeats whom? Copies share one vote (`dependence`, β).
4. Do LFs err together? Where that explains the votes better, all LFs share a row's difficulty h and its look-alike
   class ℓ (`difficulty`); this is what makes the probabilities honest.

Where confidences are given, the doubt that the LFs share is left standing (`shared_doubt`).
EM runs on about `rows_needed` weighted distinct rows and all labelled ones (`row_sample`), so that its time and memory
do not grow with the unlabelled rows. What does: a few passes over the votes to choose them, and with confidences three
or four bytes a vote (`confidence_bins`, `_outcomes`).
Labelled rows keep their label in every E step and may correct the probabilities afterwards (`calibration`).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN, UNLABELED
from dpssl.label_model.calibration import apply_correction, fit_correction
from dpssl.label_model.confidence import N_STEPS, Bins, confidence_bins, confidence_steps, rank_confidences
from dpssl.label_model.dependence import copy_weights, count_agreement, dependence_weights
from dpssl.label_model.difficulty import Difficulty, affords_difficulty
from dpssl.label_model.em import (
    CLASS_ITERATIONS,
    CLASS_TOL,
    DIFFICULTY_ITERATIONS,
    DIFFICULTY_TOL,
    Batch,
    EStep,
    Model,
    Run,
    add_difficulty,
    count_views,
    make_batches,
    most_votes,
    predictive_score,
    run_em,
    start_model,
)
from dpssl.label_model.row_sample import WeightedRows, sample_rows
from dpssl.label_model.shared_doubt import count_independent, shared_doubt, surest_rows, with_doubt
from dpssl.label_model.vote_tables import Columns, Tables, columns_from_counts, find_columns
from dpssl.label_model.votes import Bools, Floats, chunks, vote_dtype

Ints = NDArray[np.int64]

DIFFICULTY_VIEWS = 5.0  # effective votes a vote must meet on its row before a shared difficulty can be told from chance
DIFFICULTY_MARGIN = 0.01  # nats per row by which a shared difficulty must explain the votes better, chance apart
RELEARNING_ROWS = 300  # per class, from which tables are learnt anew beside the difficulty
MOST_VOTES = 100.0  # of one class on one row; e^boost to a higher power leaves the range of floats
ABSENCE_MARGIN = 0.01  # nats per vote by which κ = 1 must predict better than κ = 0
SPECIALIST_MAJORITY = 0.5  # share of specialists from which all LFs' silence counts
EXPECTED_VOTES = 10.0  # votes for a class that chance does not keep away: e^-10
ROWS_PER_CLASS, FEWEST_ROWS, MOST_CELLS = 500, 8_000, 1 << 25
MOST_COMPARED = 2000  # LFs up to which every pair is compared for copies


@dataclass(frozen=True)
class AdaptiveFit:
    """What the default model learnt, as plain arrays."""

    class_balance: Floats  # (C,) π
    vote_count: Floats  # (K, C) weighted votes by LF and class
    says: Floats  # (m, C) T_k(v | y) for the (k, v) with votes
    silent: Floats  # (K, C) T_k(abstain | y)
    absence_weight: float  # κ
    lf_weight: Floats  # (K,) β
    boost: Floats  # (H, 3)
    log_step: Floats  # (3, S)
    level_share: Floats  # (H,)
    look_alikes: Ints  # (C, M)
    look_alike_share: Floats  # (C, M)
    confidence_ranks: Floats  # (K, bins), see `confidence`; (K, 0) without confidences
    slope: float  # s and b of `calibration`; 1 and 0 without labelled rows
    bias: Floats  # (C,)
    converged: bool
    n_iter: int
    n_independent: float = 0.0  # m and c* of `shared_doubt`; 0 without confidences
    surest: float = 0.0

    def predict_log_proba(self, votes: NDArray[Any], confidence: NDArray[Any] | None = None) -> Floats:
        """log P(y | row), (n, C). A model fitted with confidences goes by the votes alone where none are given."""
        ranks = self.confidence_ranks if confidence is not None else self.confidence_ranks[:, :0]
        log_step = self.log_step if ranks.size else np.zeros((3, 1))
        difficulty = Difficulty(self.boost, log_step, self.level_share, self.look_alikes, self.look_alike_share)
        tables = Tables(self.class_balance, self.says, self.silent, difficulty)
        model = Model(columns_from_counts(self.vote_count), tables, self.absence_weight, self.lf_weight)
        log_proba = np.empty((len(votes), len(self.class_balance)))
        for rows in chunks(len(votes), max(votes.shape[1], log_proba.shape[1])):
            sure = None if confidence is None else confidence[rows]
            bins = None if sure is None or not ranks.size else confidence_bins(sure)
            outcomes = _outcomes(votes[rows], bins, ranks, log_proba.shape[1])
            found = apply_correction(_log_proba(model, outcomes), self.slope, self.bias)
            if sure is not None and self.n_independent:
                found = with_doubt(found, shared_doubt(votes[rows], sure, self.surest, self.n_independent))
            log_proba[rows] = found
        return log_proba


def fit_adaptive(
    votes: NDArray[Any],
    n_classes: int,
    *,
    y: Ints | None = None,
    confidence: NDArray[Any] | None = None,
    specialties: Bools | None = None,
    class_balance: Floats | None = None,
    sample_weight: Floats | None = None,
) -> AdaptiveFit:
    """Fit the default model.

    votes (n, K), -1 = abstain; y (n,), -1 = unlabelled; confidence (n, K); specialties (K, C) bool: only used to tell
    an LF that may name one class from one that happened to; class_balance (C,) fixes π; sample_weight (n,).
    """
    n_lfs = votes.shape[1]
    weight = np.ones(len(votes)) if sample_weight is None else sample_weight
    bins = None if confidence is None else confidence_bins(confidence)
    ranks = np.zeros((n_lfs, 0)) if bins is None else rank_confidences(votes, bins, weight)
    n_steps = 1 if confidence is None else N_STEPS
    outcomes = _outcomes(votes, bins, ranks, n_classes)
    rows = sample_rows(outcomes, n_classes * n_steps, y, weight, rows_needed(n_classes))
    run = _learn(rows, n_classes, n_steps, specialties, class_balance)
    model = run.model
    slope, bias = _correction(model, rows)
    tables, difficulty = model.tables, model.tables.difficulty
    return AdaptiveFit(
        class_balance=tables.balance,
        vote_count=_vote_count(model.columns),
        says=tables.says,
        silent=tables.silent,
        absence_weight=model.absence_weight,
        lf_weight=model.lf_weight,
        boost=difficulty.boost,
        log_step=difficulty.log_step,
        level_share=difficulty.level_share,
        look_alikes=difficulty.look_alikes,
        look_alike_share=difficulty.look_alike_share,
        confidence_ranks=ranks,
        slope=slope,
        bias=bias,
        converged=run.converged,
        n_iter=run.n_iter,
        n_independent=0.0 if confidence is None else _count_independent(rows, n_steps, model.columns, specialties),
        surest=0.0 if confidence is None else surest_rows(votes, confidence, weight),
    )


def rows_needed(n_classes: int) -> int:
    """How many distinct rows a fit uses: enough for C tables per LF, but no more than C leaves memory for."""
    return max(min(max(ROWS_PER_CLASS * n_classes, FEWEST_ROWS), MOST_CELLS // n_classes), 1)


def find_specialists(vote_count: Floats, specialties: Bools | None) -> Bools:
    """Which LFs leave classes to others, (K,): they name one class only, or miss one that they should have named.

    vote_count (K, C). An LF should have named class c if its number of votes times the share of c among all votes is
    at least EXPECTED_VOTES.
    """
    share = vote_count.sum(0) / max(vote_count.sum(), 1.0)  # (C,)
    expected = vote_count.sum(1, keepdims=True) * share  # (K, C)
    named = vote_count > 0 if specialties is None else specialties
    missed: Bools = (~named & (expected >= EXPECTED_VOTES)).any(1)
    return np.asarray(missed | (named.sum(1) <= 1))


def _outcomes(votes: NDArray[Any], bins: Bins | None, ranks: Floats, n_classes: int) -> NDArray[Any]:
    """Votes and steps of confidence as one number, v · S + s; the votes themselves without confidences."""
    if bins is None:
        return votes
    dtype = vote_dtype(n_classes * N_STEPS)
    outcomes = np.empty(votes.shape, dtype=dtype)
    for rows in chunks(*votes.shape):
        part = np.asarray(votes[rows])
        outcome = part.astype(dtype) * dtype(N_STEPS) + confidence_steps(part, bins[rows], ranks)
        outcomes[rows] = np.where(part == ABSTAIN, dtype(ABSTAIN), outcome)
    return outcomes


def _learn(
    rows: WeightedRows, n_classes: int, n_steps: int, specialties: Bools | None, class_balance: Floats | None
) -> Run:
    """The four questions of the module's head, in turn."""
    votes = _votes_of(rows, n_steps)
    n_lfs = votes.shape[1]
    columns = find_columns(votes, rows.weight, n_classes)
    agreement = count_agreement(votes, rows.weight, n_classes) if n_lfs <= MOST_COMPARED else None
    lf_weight = np.ones(n_lfs) if agreement is None else copy_weights(agreement)

    def learn_classes(absence_weight: float) -> Run:
        start = start_model(batches, columns, absence_weight, lf_weight, class_balance)
        return run_em(start, batches, class_balance, CLASS_ITERATIONS, CLASS_TOL)

    batches = make_batches(rows, columns, lf_weight, n_steps)
    run = learn_classes(1.0)
    specialists = find_specialists(_vote_count(columns), specialties)
    if (votes == ABSTAIN).any() and specialists.mean() < SPECIALIST_MAJORITY:
        deaf = learn_classes(0.0)
        gain = predictive_score(run.model, batches) - predictive_score(deaf.model, batches)
        run = run if gain >= ABSENCE_MARGIN else deaf
    if agreement is not None:
        repeated = dependence_weights(agreement, float(rows.weight.sum()), run.model)
        if (repeated < lf_weight).any():
            lf_weight = np.minimum(lf_weight, repeated)
            batches = make_batches(rows, columns, lf_weight, n_steps)
            run = learn_classes(run.model.absence_weight)
    # Whoever names one class only cannot fall for a look-alike: the votes of others must be half of all.
    names_several = (columns.code >= 0).sum(1)[columns.lf] > 1  # (m,)
    may_err_together = (
        columns.count[names_several].sum() >= 0.5 * columns.count.sum() and run.model.absence_weight == 1.0
    )
    enough_votes = count_views(batches) >= DIFFICULTY_VIEWS and most_votes(batches) <= MOST_VOTES
    if may_err_together and enough_votes and affords_difficulty(n_classes, n_lfs):
        n_rows = float(rows.weight.sum())
        relearn = specialists.mean() >= SPECIALIST_MAJORITY and n_rows >= RELEARNING_ROWS * n_classes
        run = _with_difficulty(run, batches, class_balance, n_rows, keep_tables=not relearn)
    return run


def _with_difficulty(
    run: Run, batches: list[Batch], class_balance: Floats | None, n_rows: float, keep_tables: bool
) -> Run:
    """The model with shared difficulty, if it explains the votes better by more than its parameters would by chance.

    The penalty is that of the Bayesian information criterion. Votes that are independent given the class gain nothing,
    and forced into a shared difficulty they lose up to 4 points of accuracy. Tables that are learnt anew together with
    the difficulty gain accuracy from many rows of specialists; elsewhere they drift, and only the difficulty is learnt.
    """
    start = add_difficulty(run.model)
    hard = run_em(start, batches, class_balance, DIFFICULTY_ITERATIONS, DIFFICULTY_TOL, keep_tables)
    difficulty = start.tables.difficulty
    n_parameters = difficulty.boost.size + difficulty.level_share.size + difficulty.look_alikes.size
    penalty = n_parameters * np.log(max(n_rows, 2.0)) / (2 * n_rows)
    if hard.log_likelihood - run.log_likelihood <= penalty + DIFFICULTY_MARGIN:
        return run
    return replace(hard, n_iter=run.n_iter + hard.n_iter)


def _log_proba(model: Model, outcomes: NDArray[Any]) -> Floats:
    """log P(y | row) of rows of outcomes, (n, C)."""
    step, n_steps = EStep(model), model.tables.difficulty.log_step.shape[1]
    rows = WeightedRows(outcomes, np.full(len(outcomes), UNLABELED), np.ones(len(outcomes)))
    batches = make_batches(rows, model.columns, model.lf_weight, n_steps)
    proba = np.concatenate([step.infer(batch).joint.sum(0) for batch in batches])
    return np.asarray(np.log(np.maximum(proba, 1e-300)))


def _correction(model: Model, rows: WeightedRows) -> tuple[float, Floats]:
    """What the labelled rows change about the probabilities: s and b of `calibration`."""
    labeled = np.flatnonzero(rows.y != UNLABELED)
    if len(labeled) == 0:
        return 1.0, np.zeros(len(model.tables.balance))
    return fit_correction(_log_proba(model, rows.outcomes[labeled]), rows.y[labeled], rows.weight[labeled])


def _count_independent(rows: WeightedRows, n_steps: int, columns: Columns, specialties: Bools | None) -> float:
    """m of `shared_doubt`, where LFs are not too many to be compared."""
    votes = _votes_of(rows, n_steps)
    named = _vote_count(columns) > 0 if specialties is None else specialties
    return count_independent(votes, named, rows.weight) if votes.shape[1] <= MOST_COMPARED else 0.0


def _votes_of(rows: WeightedRows, n_steps: int) -> NDArray[Any]:
    """The votes in outcomes v · S + s."""
    return np.where(rows.outcomes == ABSTAIN, ABSTAIN, rows.outcomes // n_steps)


def _vote_count(columns: Columns) -> Floats:
    count = np.zeros(columns.code.shape)
    used = columns.used
    count[columns.lf[used], columns.vote[used]] = columns.count[used]
    return count

"""Step 2: `LabelModel`, one interface for every model that turns votes into soft labels."""

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.constants import ABSTAIN
from dpssl.errors import InputError
from dpssl.label_model.analysis import LFSummary, summarize_lfs
from dpssl.label_model.checks import (
    VoteData,
    check_confidence,
    check_labels,
    check_n_classes,
    check_specialties,
    check_vote_data,
    check_votes,
    leave_out_weightless,
)
from dpssl.label_model.given_votes import count_classes, read_given, read_labels
from dpssl.label_model.manners import Manners
from dpssl.label_model.storage import load_header, load_part, save_parts
from dpssl.label_model.tally import VoteTally, rows_once, tally_votes
from dpssl.label_model.variants import DEFAULT_VARIANT, FittedModel, find_variant, make_settings
from dpssl.label_model.vote_table import VoteTable
from dpssl.label_model.votes import Bools, Floats, Votes, chunks, count_votes, covered, unanimous_votes
from dpssl.named_classes import NO_NAME, check_class_names, classes_in_words

UNANIMOUS_MARGIN = 1e-6  # by how much (relative) a unanimous class is made to win where the model disagrees
TIE = 1e-9  # class probabilities this close are tied


class LabelModel(Manners):
    """Soft labels from the votes of labeling functions.

    n_classes: number of classes C, which are then 0 … C - 1; None counts those that the votes name.
    variant: which model, one of `dpssl.label_model.VARIANTS`.
    class_names: names of the classes, in the order of the columns of soft labels; None takes the names that the votes
        hold, in alphabetical order, if they hold names.
    settings: the variant's settings, as its dataclass or a dict of its fields; None for its defaults.
    respect_unanimous: never contradict a row on which two or more LFs speak and all agree.

    After `fit`: `classes_` (C,) numbers or names, `class_balance_` (C,), `specialties_` (K, C), `converged_`,
    `n_iter_`, and `fitted_`, what it learnt.
    """

    def __init__(
        self,
        n_classes: int | None = None,
        variant: str = DEFAULT_VARIANT,
        *,
        class_names: Sequence[str] | None = None,
        settings: Any = None,
        respect_unanimous: bool = True,
    ) -> None:
        self.n_classes = n_classes
        self.variant = variant
        self.class_names = class_names
        self.settings = settings
        self.respect_unanimous = respect_unanimous

    def fit(
        self,
        votes: Any,
        y: Any = None,
        confidence: Any = None,
        specialties: Any = None,
        class_balance: Any = None,
        sample_weight: Any = None,
    ) -> "LabelModel":
        """Learn from votes.

        votes: (n, K) class numbers, -1 = abstain, or class names, "" or None = abstain: an array or memory map, nested
            lists, a pandas DataFrame, a scipy sparse matrix (stored entries are votes, a stored 0 is class 0), the
            path of a .npz, .npy, .csv or .parquet file, or a `VoteTable`.
        y: (n,) known labels of the same rows, -1 (or "") where unknown.
        confidence: (n, K) the probability each LF gave to its vote.
        specialties: (K, C) bool, the classes each LF may vote for; read off the votes when not given.
        class_balance: (C,) the class shares, where they are known; learnt otherwise.
        sample_weight: (n,) how often each row counts; a row of weight 0 is one that is left out.
        """
        variant = find_variant(self.variant)
        settings = make_settings(self.variant, self.settings)
        _warn_of_unused_confidence(self.variant, confidence)
        table, y, names = read_given(votes, y, confidence, specialties, self._given_names())
        specialties = table.specialties
        n_classes = self._count_classes(table, y, names, class_balance)
        data = check_vote_data(table.votes, n_classes, y, table.confidence, specialties, class_balance, sample_weight)
        self.classes_: NDArray[Any] = np.arange(n_classes) if names is None else np.array(names)
        self._lf_names: list[str] | None = table.lf_names
        self._n_given = len(data.votes)
        data = leave_out_weightless(data, specialties is not None)
        _warn_about_gaps(data, table.lf_names, names)
        if not variant.uses_confidence:
            data = dataclasses.replace(data, confidence=None)
        if data.confidence is None and (once := rows_once(data.votes, data.y, data.sample_weight)):
            data = data.take(*once)
        self.fitted_: FittedModel = variant.fit(data, settings)
        self.specialties_: Bools = data.specialties
        self._specialties_given = specialties is not None
        self._summary: LFSummary | VoteData = data  # the table costs as much as predicting: made when it is asked for
        self.tally_: VoteTally | None = None
        return self

    def partial_fit(
        self,
        votes: Any,
        y: Any = None,
        confidence: Any = None,
        specialties: Any = None,
        class_balance: Any = None,
        sample_weight: Any = None,
    ) -> "LabelModel":
        """Learn from these votes and from those of all earlier calls, as one `fit` on all of them does.

        Takes what `fit` takes; specialties and class_balance hold for the rows of all calls. `tally_` keeps their
        rows, on which every call fits anew. Workers that share a fit each call `tally_votes`, add up the
        tallies and fit once.
        """
        before = getattr(self, "tally_", None)
        if before is None and hasattr(self, "fitted_"):
            raise InputError(
                "partial_fit goes on from partial_fit only: a model that was fitted by `fit` or loaded does not keep "
                "its rows; start with a new LabelModel"
            )
        if self.n_classes is None and self.class_names is None:
            raise InputError("partial_fit cannot count the classes of rows to come; give n_classes or class_names")
        _warn_of_unused_confidence(self.variant, confidence)
        table, y, names = read_given(votes, y, confidence, specialties, self._given_names())
        if before is not None:
            table = table.with_columns(self._lf_names)
        n_classes = self._count_classes(table, y, names, class_balance)
        confidence = table.confidence if find_variant(self.variant).uses_confidence else None
        tally = tally_votes(table.votes, n_classes, y, confidence, sample_weight)
        if before is not None:
            tally = before + tally
        counted = VoteTable(
            tally.votes, tally.confidence, table.specialties, class_names=names, lf_names=table.lf_names
        )
        self.fit(counted, tally.y, class_balance=class_balance, sample_weight=tally.sample_weight)
        self.tally_ = tally
        return self

    def _given_names(self) -> list[str] | None:
        return None if self.class_names is None else check_class_names(self.class_names)

    def _count_classes(self, table: VoteTable, y: Any, names: list[str] | None, class_balance: Any) -> int:
        """C: as given, and as many as there are names; or as many as are met."""
        if self.n_classes is None:
            n_classes = max(2, count_classes(table, y, class_balance)) if names is None else len(names)
            if n_classes < 2:
                raise InputError(f"the votes name one class, {names}; give all as class_names")
            return n_classes
        n_classes = check_n_classes(self.n_classes)
        if names is not None and len(names) != n_classes:
            raise InputError(f"n_classes is {n_classes}, but {classes_in_words(names)}; give all names as class_names")
        return n_classes

    @property
    def class_balance_(self) -> Floats:
        """(C,) the class prior, which rows without a vote get."""
        return self._require_fitted().class_balance

    @property
    def converged_(self) -> bool:
        """Did the fit stop by its own rule, before its iterations ran out?"""
        return self._require_fitted().converged

    @property
    def n_iter_(self) -> int:
        """Iterations the fit took."""
        return self._require_fitted().n_iter

    def predict_proba(self, votes: Any, confidence: Any = None) -> Floats:
        """Soft labels, (n, C) with rows that sum to 1; a row without a vote gets the class prior."""
        return self._soft_labels(*self._check(votes, confidence))

    def _check(self, votes: Any, confidence: Any) -> tuple[Votes, NDArray[np.float32] | None]:
        """Votes and confidences to predict from, checked against what the model was fitted on."""
        self._require_fitted()
        table = read_given(votes, None, confidence, None, self._names)[0].with_columns(self._lf_names)
        if self._names is None and table.class_names is not None:
            raise InputError("votes are class names, but the model was fitted on class numbers without names")
        confidence, n_classes = table.confidence, len(self.classes_)
        votes = check_votes(table.votes, n_classes)
        if votes.shape[1] != len(self.specialties_):
            raise InputError(
                f"votes have {votes.shape[1]} columns, but the model was fitted on {len(self.specialties_)}"
            )
        if self._specialties_given:
            check_specialties(self.specialties_, votes, count_votes(votes, n_classes))
        return votes, check_confidence(confidence, votes, n_classes)

    def _soft_labels(self, votes: NDArray[Any], confidence: NDArray[Any] | None) -> Floats:
        soft_labels = np.empty((len(votes), len(self.class_balance_)))
        for rows in chunks(len(votes), max(votes.shape[1], soft_labels.shape[1])):
            part, sure = votes[rows], None if confidence is None else confidence[rows]
            proba = self.fitted_.predict_log_proba(part, sure)
            if self.respect_unanimous:
                _let_unanimous_win(proba, unanimous_votes(part))
            proba -= proba.max(axis=1, keepdims=True)
            np.exp(proba, out=proba)
            proba[~covered(part)] = self.class_balance_
            np.divide(proba, proba.sum(axis=1, keepdims=True), out=soft_labels[rows])
        return soft_labels

    def predict(
        self,
        votes: Any,
        confidence: Any = None,
        tie_break: str = "abstain",
        rng: np.random.Generator | None = None,
    ) -> NDArray[Any]:
        """Hard labels, (n,), each one of `classes_`.

        tie_break: what a row gets when several classes are tied for the largest probability, or nobody votes:
            "abstain" gives -1, or "" where classes have names; "lowest" the lowest tied class; "random" one of the
            tied classes, drawn with `rng`.
        """
        votes, confidence = self._check(votes, confidence)
        tied = _tied_classes(self._soft_labels(votes, confidence))  # (n, C)
        if tie_break == "lowest":
            return np.asarray(self.classes_[tied.argmax(axis=1)])
        if tie_break == "random":
            draws = (rng or np.random.default_rng(0)).random(tied.shape)
            return np.asarray(self.classes_[np.where(tied, draws, -1.0).argmax(axis=1)])
        if tie_break == "abstain":
            decided = (tied.sum(axis=1) == 1) & covered(votes)
            return np.where(decided, self.classes_[tied.argmax(axis=1)], ABSTAIN if self._names is None else NO_NAME)
        raise InputError(f"tie_break is {tie_break!r}; choose 'abstain', 'lowest' or 'random'")

    def score(self, votes: Any, y: Any, confidence: Any = None) -> float:
        """Accuracy of the likeliest class over the rows with a known label; each of m tied classes counts 1/m."""
        proba = self.predict_proba(votes, confidence)
        truth = check_labels(read_labels(y, self._names or ()), len(proba), len(self.classes_))
        known = np.flatnonzero(truth != ABSTAIN)
        if not len(known):
            raise InputError("y has no known label (all -1); score needs at least one")
        tied = _tied_classes(proba)
        return float((tied[known, truth[known]] / tied[known].sum(axis=1)).mean())

    def lf_summary(self, soft_labels: Any = None) -> LFSummary:
        """The table of labeling functions on the votes the model was fitted on.

        soft_labels: (n, C) what `predict_proba` gave for those very rows and confidences, where the caller has it: a
            table without it predicts all of them again. After `partial_fit` the rows are those of `tally_`.

        Made at the first call, or by `save`; until then the model refers to those votes, so leave them as they are.
        """
        self._require_fitted()
        if not isinstance(self._summary, LFSummary):
            labels = None if soft_labels is None else self._check_soft_labels(soft_labels)
            summary = summarize_lfs(self._summary, self._soft_labels, labels)
            self._summary = dataclasses.replace(summary, lf_names=self._lf_names, class_names=self._names)
        return self._summary

    def _check_soft_labels(self, soft_labels: Any) -> Floats:
        array = np.asarray(soft_labels)
        if array.shape != (self._n_given, len(self.classes_)) or array.dtype.kind != "f":
            raise InputError(
                f"soft_labels have shape {array.shape} and type {array.dtype}; give what predict_proba returns for the "
                f"votes that the model was fitted on, ({self._n_given}, {len(self.classes_)})"
            )
        return array

    def save(self, path: str | Path, soft_labels: Any = None) -> None:
        """Write the fitted model as safetensors, settings as JSON in the metadata; soft_labels: see `lf_summary`."""
        fitted = self._require_fitted()
        header = {
            "n_classes": len(self.classes_),
            "class_names": self._names,
            "variant": self.variant,
            "settings": dataclasses.asdict(make_settings(self.variant, self.settings)),
            "respect_unanimous": self.respect_unanimous,
            "specialties_given": self._specialties_given,
            "fitted": type(fitted).__name__,
        }
        save_parts(path, header, {"model": fitted, "summary": self.lf_summary(soft_labels)})

    @classmethod
    def load(cls, path: str | Path) -> "LabelModel":
        """Read a model that `save` wrote."""
        header = load_header(path)
        variant = find_variant(header["variant"])
        model = cls(
            header["n_classes"],
            header["variant"],
            class_names=header.get("class_names"),
            settings=header["settings"] or None,
            respect_unanimous=header["respect_unanimous"],
        )
        kind = next((kind for kind in variant.fitted if kind.__name__ == header["fitted"]), variant.fitted[0])
        model.fitted_ = load_part(path, "model", kind)
        summary: LFSummary = load_part(path, "summary", LFSummary)
        model.classes_ = np.array(model.class_names) if model.class_names else np.arange(header["n_classes"])
        model._summary, model.specialties_, model._lf_names = summary, summary.specialties, summary.lf_names
        model._specialties_given = header["specialties_given"]
        return model

    @property
    def _names(self) -> list[str] | None:
        """The names of the classes, where they have some."""
        return self.classes_.tolist() if self.classes_.dtype.kind == "U" else None

    def _require_fitted(self) -> FittedModel:
        if not hasattr(self, "fitted_"):
            raise InputError("this LabelModel is not fitted; call fit(votes) or LabelModel.load(path) first")
        return self.fitted_


def _tied_classes(proba: Floats) -> Bools:
    """Which classes share the largest probability of their row, (n, C)."""
    return np.asarray(proba >= proba.max(axis=1, keepdims=True) - TIE)


def _let_unanimous_win(log_proba: Floats, unanimous: NDArray[Any]) -> None:
    """Raise the unanimous class just above the largest other where the model does not let it win; in place."""
    rows = np.flatnonzero(unanimous != ABSTAIN)
    winners = unanimous[rows]
    others = log_proba[rows]  # a copy
    others[np.arange(len(rows)), winners] = -np.inf
    log_proba[rows, winners] = np.maximum(log_proba[rows, winners], others.max(axis=1) + UNANIMOUS_MARGIN)


def _warn_of_unused_confidence(variant: str, confidence: Any) -> None:
    if confidence is not None and not find_variant(variant).uses_confidence:
        warnings.warn(f"variant {variant!r} does not use confidence", UserWarning, stacklevel=3)


def _warn_about_gaps(data: VoteData, lf_names: list[str] | None, class_names: list[str] | None) -> None:
    if data.dead_lfs:
        message = f"labeling functions that never vote: {_shortened(data.dead_lfs, lf_names)}"
        warnings.warn(message, UserWarning, stacklevel=3)
    if data.unvoted_classes:
        message = f"no labeling function votes for class {_shortened(data.unvoted_classes, class_names)}"
        warnings.warn(message, UserWarning, stacklevel=3)


def _shortened(numbers: list[int], names: list[str] | None, most: int = 20) -> str:
    shown: list[Any] = numbers[:most] if names is None else [names[number] for number in numbers[:most]]
    return f"{shown}" if len(numbers) <= most else f"{shown} and {len(numbers) - most} more"

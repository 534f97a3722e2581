"""Step 2: every model that `LabelModel(variant=...)` offers, by name. A new model is one entry here.

A model is a fit function over checked votes and a frozen dataclass of what it learnt. The dataclass has
`class_balance` (C,), `converged`, `n_iter` and `predict_log_proba(votes, confidence=None)`; its fields are numpy arrays
and plain values, which is all that saving and loading need to know.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from numpy.typing import NDArray

from dpssl.errors import InputError
from dpssl.label_model.adaptive import AdaptiveFit, fit_adaptive
from dpssl.label_model.baselines import TripletFit, VoteShareFit, fit_majority, fit_specialist_vote, fit_triplets
from dpssl.label_model.checks import VoteData
from dpssl.label_model.dawid_skene import DawidSkeneFit, DawidSkeneSettings, fit_dawid_skene
from dpssl.label_model.paper import PaperFit, PaperSettings, fit_paper
from dpssl.label_model.votes import Floats
from dpssl.label_model.weighted_vote import WeightedVoteFit, fit_weighted_vote

DEFAULT_VARIANT = "adaptive"
LARGEST_ADAPTIVE_TABLE = 1 << 22  # numbers; EM holds several such tables and passes over them once per batch of rows


class FittedModel(Protocol):
    """What every variant learns."""

    @property
    def class_balance(self) -> Floats: ...
    @property
    def converged(self) -> bool: ...
    @property
    def n_iter(self) -> int: ...
    def predict_log_proba(self, votes: NDArray[Any], confidence: NDArray[Any] | None = None) -> Floats: ...


@dataclass(frozen=True)
class NoSettings:
    """A model without settings."""


@dataclass(frozen=True)
class Variant:
    """One model: how it is fitted, and the types of its settings and of what it learns."""

    fit: Callable[..., FittedModel]  # (VoteData, settings)
    fitted: tuple[type[Any], ...]  # more than one where the votes decide
    settings: Callable[..., Any] = NoSettings
    uses_confidence: bool = False


def _without_settings(fit: Callable[[VoteData], FittedModel]) -> Callable[[VoteData, Any], FittedModel]:
    return lambda data, settings: fit(data)


def _fit_adaptive(data: VoteData, settings: NoSettings) -> AdaptiveFit | WeightedVoteFit:
    n_lfs, n_classes = data.n_votes.shape
    n_named = int((data.n_votes > 0).sum(1).max())  # the most classes that one LF names
    if n_lfs * n_named * n_classes > LARGEST_ADAPTIVE_TABLE:
        warnings.warn(
            f"{n_lfs} labeling functions that name up to {n_named} of {n_classes} classes need too large tables: "
            "one accuracy per labeling function and class is learnt instead, and confidences are not used",
            UserWarning,
            stacklevel=3,
        )
        return fit_weighted_vote(data)
    return fit_adaptive(
        data.votes,
        data.n_classes,
        y=data.y,
        confidence=data.confidence,
        specialties=data.specialties,
        class_balance=data.class_balance,
        sample_weight=data.sample_weight,
    )


VARIANTS: dict[str, Variant] = {
    "adaptive": Variant(_fit_adaptive, (AdaptiveFit, WeightedVoteFit), uses_confidence=True),
    "majority": Variant(_without_settings(fit_majority), (VoteShareFit,), uses_confidence=True),
    "specialist-vote": Variant(_without_settings(fit_specialist_vote), (VoteShareFit,), uses_confidence=True),
    "triplet": Variant(_without_settings(fit_triplets), (TripletFit,)),
    "snorkel": Variant(fit_paper, (PaperFit,), partial(PaperSettings, potential="snorkel", regularizer="none")),
    "paper": Variant(fit_paper, (PaperFit,), PaperSettings),
    "dawid-skene": Variant(fit_dawid_skene, (DawidSkeneFit,), DawidSkeneSettings),
}


def find_variant(name: str) -> Variant:
    """The variant of that name."""
    if name not in VARIANTS:
        raise InputError(f"variant is {name!r}; choose one of {', '.join(VARIANTS)}")
    return VARIANTS[name]


def confidence_for(name: str, confidence: NDArray[Any] | None) -> NDArray[Any] | None:
    """`confidence` where the variant of that name uses it, else None."""
    return confidence if find_variant(name).uses_confidence else None


def make_settings(name: str, settings: Any) -> Any:
    """A variant's settings dataclass from None (its defaults), a dict of its fields, or the dataclass itself."""
    factory = find_variant(name).settings
    if settings is None:
        return factory()
    if isinstance(settings, dict):
        known = factory().__dataclass_fields__
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise InputError(
                f"variant {name!r} has no setting {', '.join(unknown)}; it has: {', '.join(known) or 'none'}"
            )
        return factory(**settings)
    if not isinstance(settings, type(factory())):
        raise InputError(f"settings are {type(settings).__name__}; variant {name!r} takes {type(factory()).__name__}")
    return settings

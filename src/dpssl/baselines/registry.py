"""Every method by its name, and its settings from `--method-settings`."""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import get_type_hints

from dpssl.baselines.fixmatch import FixMatch
from dpssl.baselines.fixmatch_cta import FixMatchCTA
from dpssl.baselines.flexmatch import FlexMatch
from dpssl.baselines.freematch import FreeMatch
from dpssl.baselines.fully_supervised import FullySupervised
from dpssl.baselines.mean_teacher import MeanTeacher
from dpssl.baselines.mixmatch import MixMatch
from dpssl.baselines.pi_model import PiModel
from dpssl.baselines.pseudo_label import PseudoLabel
from dpssl.baselines.remixmatch import ReMixMatch
from dpssl.baselines.supervised import Supervised
from dpssl.baselines.system import MethodSettings, System
from dpssl.baselines.uda import UDA
from dpssl.baselines.usadtm import USADTM
from dpssl.config import DP_SSL, convert
from dpssl.errors import InputError

SYSTEMS: dict[str, type[System]] = {
    "supervised": Supervised,
    "fully-supervised": FullySupervised,
    "pi-model": PiModel,
    "pseudo-label": PseudoLabel,
    "mean-teacher": MeanTeacher,
    "mixmatch": MixMatch,
    "uda": UDA,
    "remixmatch": ReMixMatch,
    "fixmatch": FixMatch,
    "fixmatch-cta": FixMatchCTA,
    "usadtm": USADTM,
    "flexmatch": FlexMatch,
    "freematch": FreeMatch,
}


def method_settings(method: str, given: Sequence[str]) -> MethodSettings:
    """The method's published settings, but for those that `given` names as `name=value`. DP-SSL's are no part of it."""
    kind = MethodSettings if method == DP_SSL else SYSTEMS[method].Settings
    types = get_type_hints(kind)
    names = [item.name for item in dataclasses.fields(kind)]
    values = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise InputError(f"--method-settings {text}: write name=value; {_choices(method, names)}")
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise InputError(f"--method-settings {text}: {hint}{_choices(method, names)}")
        try:
            values[name] = convert(value, types[name])
        except ValueError as problem:
            raise InputError(f"--method-settings {name}: {problem}") from None
    return kind(**values)


def as_given(settings: MethodSettings) -> tuple[str, ...]:
    """All settings as `name=value`, so that a run's config.toml says what it was trained with."""
    return tuple(f"{name}={value}" for name, value in dataclasses.asdict(settings).items())


def changed_setting(method: str, noted: Sequence[str], given: Sequence[str]) -> str:
    """In which setting a run with `noted` ones differs from one with `given` ones now; empty where in none.

    A setting that is newer than the run had its default. One that is gone may have been what a newer one is now.
    """
    before, defaults, now = (
        dict(text.partition("=")[::2] for text in settings)
        for settings in (noted, as_given(method_settings(method, ())), as_given(method_settings(method, given)))
    )
    for name in before.keys() - now.keys():
        return f"was made with {name} = {before[name]}, which {method} does not have now"
    for name, value in now.items():
        was = before.get(name, defaults[name])
        if was != value:
            return f"was made with {name} = {was}, which is {value} now"
    return ""


def _choices(method: str, names: Sequence[str]) -> str:
    return f"{method} has {', '.join(names)}" if names else f"{method} has no settings of this kind"

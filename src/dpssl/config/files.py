"""Settings by name: from flags, to and from TOML, and from the presets.

Values come from, in this order: the defaults of the sections, a preset, a `--config` file, flags.
"""

import dataclasses
import difflib
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from dpssl.config.section import flag
from dpssl.config.sections import Config
from dpssl.errors import InputError

SMALL_SIDE = 16  # pixels; a Wide ResNet-28 would leave nothing of a smaller image
SMALL_PRESET, LARGE_PRESET = "digits", "photos"  # for images up to that side, and above it
# These may change from command to command. The first four never change a result, nor do minutes unless a run that was
# planned for them falls behind; another device or number of threads rounds differently, and a checkpoint continues on
# its own kind of device only (see dpssl.training.watch).
FREE_TO_CHANGE = ("checkpoint_minutes", "image_memory", "report", "track", "max_minutes", "plan", "device", "threads")
# Switches that were measured, helped nowhere and are gone: what meant "off", and why (docs/method.md, section 2).
RETIRED: dict[str, tuple[Any, str]] = {
    "abstain_claim": (0.0, "which changed nothing"),
    "fairness_weight": (0.0, "which was tried once, in a run that collapsed"),
    "propagation_veto": (False, "with which fewer labels were right"),
}


@dataclass(frozen=True)
class Option:
    """One field as the command line and the documentation show it."""

    section: str
    name: str
    type: Any
    default: Any
    help: str
    choices: tuple[str, ...]

    @property
    def metavar(self) -> str:
        """What the value is, for the command line's help."""
        if isinstance(self.default, tuple):
            return "VALUE"
        choices = ("true", "false") if self.type is bool else self.choices
        return "{" + ",".join(choices) + "}" if choices else self.type.__name__.upper()

    def parse(self, value: Any) -> Any:
        """`value` (from TOML or the command line) as this field's type, or an error that names the flag."""
        if self.default == () and not value:  # a list that may be empty
            return ()
        try:
            return convert(value, self.type)
        except ValueError as problem:
            raise InputError(f"{flag(self.name)}: {problem}") from None


def options() -> Iterator[Option]:
    """Every field of every section, in order."""
    for section in dataclasses.fields(Config):
        section_type = get_type_hints(Config)[section.name]
        types_of = get_type_hints(section_type)
        for item in dataclasses.fields(section_type):
            about = item.metadata
            yield Option(section.name, item.name, types_of[item.name], item.default, about["help"], about["choices"])


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """`config` with the named fields replaced, in any order; unknown names and wrong types are errors."""
    known = {entry.name: entry for entry in options()}
    changes: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if name not in known:
            raise InputError(
                f"unknown setting {name!r}{meant(name.replace('-', '_'), known)}; `dpssl run --help` lists all of them"
            )
        changes.setdefault(known[name].section, {})[name] = known[name].parse(value)
    # A section at a time: settings of one may be allowed only together.
    sections = {name: dataclasses.replace(getattr(config, name), **fields) for name, fields in changes.items()}
    return dataclasses.replace(config, **sections)


def meant(name: str, known: Iterable[str]) -> str:
    """A question after a name that does not exist: the known one most like it, if any is."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def settings_that_matter(config: Config) -> dict[str, Any]:
    """Every setting that decides what a run computes, as JSON values."""
    values = {entry.name: getattr(getattr(config, entry.section), entry.name) for entry in options()}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if name not in FREE_TO_CHANGE
    }


def to_toml(config: Config) -> str:
    """The whole configuration as TOML, a table a section, with each field's help behind it."""
    lines: list[str] = []
    section = ""
    for entry in options():
        if entry.section != section:
            section = entry.section
            lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        value = getattr(getattr(config, section), entry.name)
        lines.append(f"{entry.name} = {_toml_value(value)}  # {entry.help}")
    return "\n".join(lines) + "\n"


def from_toml(text: str, base: Config | None = None, source: str = "config") -> Config:
    """`base` (default: the defaults) with what the TOML text names; keys may stand in their section or at the top."""
    values = named_values(text, source)
    try:
        return with_values(base or Config(), values)
    except InputError as problem:
        raise InputError(f"{source}: {problem}") from None


def named_values(text: str, source: str = "config") -> dict[str, Any]:
    """The settings that a TOML text names, as they stand there, without those that are gone."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InputError(f"{source} is not valid TOML: {problem}") from None
    sections = {entry.section for entry in options()}
    values: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            if key in sections:
                values.update(value)
            elif key != "environment":  # what the run folder notes about versions and device is not a setting
                raise InputError(f"{source}: unknown section [{key}]; the sections are {', '.join(sorted(sections))}")
        else:
            values[key] = value
    for name, (off, why) in RETIRED.items():
        if values.pop(name, off) != off:
            raise InputError(f"{source}: there is no {name} any more, {why}; leave it out, or set it to {off!r}")
    return values


def is_retired(name: str, value: Any) -> bool:
    """Whether that was a setting once, and a run with this value did as runs do without it."""
    return name in RETIRED and RETIRED[name][0] == value


def preset_names() -> list[str]:
    """Names that `--preset` takes."""
    folder = resources.files("dpssl") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_preset(name: str, base: Config | None = None) -> Config:
    return from_toml(_preset_text(name), base, f"preset {name}")


def preset_values(name: str) -> dict[str, Any]:
    """The settings that a preset names."""
    return named_values(_preset_text(name), f"preset {name}")


def _preset_text(name: str) -> str:
    if name not in preset_names():
        raise InputError(f"--preset {name!r} is unknown; choose one of {', '.join(preset_names())}")
    return (resources.files("dpssl") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def default_preset(data: str, image_side: int | None = None) -> str | None:
    """The preset for data without one: the embedded set has its own, others go by their side in pixels, once known."""
    if data == SMALL_PRESET:
        return data
    if image_side is None:
        return None
    return SMALL_PRESET if image_side <= SMALL_SIDE else LARGE_PRESET


def load_config_file(path: str | Path, base: Config | None = None) -> Config:
    return from_toml(_config_text(path), base, str(path))


def config_file_values(path: str | Path) -> dict[str, Any]:
    """The settings that a `--config` file names."""
    return named_values(_config_text(path), str(path))


def _config_text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"--config {path}: cannot be read ({problem})") from None


def convert(value: Any, wanted: Any) -> Any:
    """`value` (from TOML or the command line) as the type `wanted`; ValueError where it cannot be."""
    if get_origin(wanted) in (tuple, types.GenericAlias):
        item_type = get_args(wanted)[0]
        items = value.replace(",", " ").split() if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ValueError(f"expected a list, got {value!r}")
        if not items:
            raise ValueError("expected at least one value")
        return tuple(convert(item, item_type) for item in items)
    if wanted is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise ValueError(f"expected true or false, got {value!r}")
    if isinstance(value, bool | list | dict) or (wanted is int and isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"expected {wanted.__name__}, got {value!r}")
    try:
        return wanted(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"expected {wanted.__name__}, got {value!r}") from None


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return repr(value)

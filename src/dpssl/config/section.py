"""What a section of the settings is: a frozen dataclass whose fields know their help and what they may be.

Every field has one name, used as field, TOML key and command-line flag (`n_lfs` is `--n-lfs`), and one line of help.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from dpssl.errors import InputError


def option(
    default: Any, help: str, *, least: float | None = None, most: float | None = None, choices: tuple[str, ...] = ()
) -> Any:
    """A field with its default, the one line of help shown by the command line, and what it may be."""
    return field(default=default, metadata={"help": help, "least": least, "most": most, "choices": choices})


@dataclass(frozen=True)
class Section:
    """A group of fields; making one checks every value against what its field allows."""

    @classmethod
    def shown(cls, name: str) -> str:
        """How an error names a field."""
        return flag(name)

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value, allowed = getattr(self, item.name), item.metadata
            for single in value if isinstance(value, tuple) else (value,):
                if allowed["choices"] and single not in allowed["choices"]:
                    raise InputError(f"{self.shown(item.name)} {single!r}: choose {' or '.join(allowed['choices'])}")
                if allowed["least"] is not None and not single >= allowed["least"]:
                    raise InputError(f"{self.shown(item.name)} {single!r}: must be at least {allowed['least']:g}")
                if allowed["most"] is not None and not single <= allowed["most"]:
                    raise InputError(f"{self.shown(item.name)} {single!r}: must be at most {allowed['most']:g}")

    def check_order(self, least: str, most: str) -> None:
        """An error where the field `least` is above the field `most`."""
        if getattr(self, least) > getattr(self, most):
            raise InputError(
                f"{self.shown(least)} {getattr(self, least)}: must be at most {self.shown(most)} {getattr(self, most)}"
            )


def flag(name: str) -> str:
    """The command-line flag of a field."""
    return "--" + name.replace("_", "-")

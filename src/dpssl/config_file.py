"""config.toml of a run: the whole resolved configuration, what it ran on, and a checksum of the settings.

A finished step keeps no checkpoint that would tell which settings made it, so an edit could not be noticed later: the
checksum notices it.
"""

import hashlib
import json
import tomllib
from typing import Any

from dpssl.config import FREE_TO_CHANGE, Config, from_toml, to_toml
from dpssl.errors import RunFolderError
from dpssl.run_folder import RunFolder

CONFIG = "config.toml"


def write_config(folder: RunFolder, config: Config, environment: dict[str, str]) -> None:
    text = to_toml(config)
    noted = environment | {"settings": _checksum_of_settings(tomllib.loads(text))}
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in noted.items())
    folder.write_text(CONFIG, f"{text}\n[environment]\n{''.join(lines)}")


def read_config(folder: RunFolder) -> tuple[Config, dict[str, str]]:
    """The configuration, and the table [environment] without the checksum, which the settings must fit."""
    text = folder.read_text(CONFIG)
    config = from_toml(text, source=str(folder.path(CONFIG)))
    document = tomllib.loads(text)
    environment: dict[str, str] = document.get("environment", {})
    noted = environment.pop("settings", None)
    if noted != _checksum_of_settings(document):  # also where it is missing: a file cut short may be valid TOML still
        raise RunFolderError(
            f"{folder.path(CONFIG)}: was edited or cut short, its settings are not those the run was started with; "
            "undo the change, or start a new run with this file as --config and another --out"
        )
    return config, environment


def _checksum_of_settings(document: dict[str, Any]) -> str:
    """Of the settings that a config.toml names, those free to change apart. Settings added since are not among them."""
    tables = {
        section: {name: value for name, value in table.items() if name not in FREE_TO_CHANGE}
        for section, table in document.items()
        if section != "environment"
    }
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()

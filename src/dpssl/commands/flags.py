"""Flags from the settings of dpssl.config, and the configuration that a command's flags ask for."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from dpssl.config import (
    DP_SSL,
    NO_METHOD,
    Config,
    alone,
    config_file_values,
    default_preset,
    flag,
    load_config_file,
    load_preset,
    of_dp_ssl_alone,
    options,
    preset_names,
    with_values,
)
from dpssl.errors import InputError

N_SHOWN = 3  # names in a note


def add_new_run_flags(command: argparse.ArgumentParser) -> None:
    """What every command that starts a run takes: --out, --preset, --config and all settings."""
    command.add_argument("--out", help="new run folder; default: the next free one under runs/")
    command.add_argument("--preset", metavar="NAME", help=f"settings to start from: {', '.join(preset_names())}")
    command.add_argument("--config", help="TOML file with settings, such as a run's config.toml")
    add_settings(command)


def new_config(chosen: dict[str, Any]) -> Config:
    """Defaults, then the preset, then the config file, then flags. Without --preset, the data decides on one."""

    def settle(preset: str | None) -> Config:
        config = Config() if preset is None else load_preset(preset)
        if chosen["config"]:
            config = load_config_file(chosen["config"], config)
        return with_values(config, chosen["set"])

    preset = chosen["preset"] or default_preset(settle(None).data.data)
    return settle(preset)


def one_run(chosen: dict[str, Any]) -> Config:
    """As `new_config`, of a run that has no second opinion, whatever the preset says."""
    asked = chosen["set"].get("second_method", NO_METHOD)
    if asked != NO_METHOD:
        raise InputError(
            f"--second-method {asked}: only with `dpssl run` and DP-SSL as the first method, of which it trains both "
            "and combines them"
        )
    config = alone(new_config(chosen))
    if config.baseline.method != DP_SSL:
        _refuse_idle_flags(chosen["set"], config.baseline.method)
        _note_idle_settings(chosen["config"], config)
    return config


def _refuse_idle_flags(given: dict[str, Any], method: str) -> None:
    """A flag is for this command: one that it makes no use of is a mistake."""
    idle = [flag(name) for name in given if name in of_dp_ssl_alone()]
    if idle:
        raise InputError(
            f"{', '.join(idle)}: only for DP-SSL's own steps, of which --method {method} has none; leave out what is "
            "not for it, and give its own settings by --method-settings"
        )


def _note_idle_settings(path: str | None, config: Config) -> None:
    """A file may be for several commands, and a run's config.toml names every setting: no mistake, but worth a line."""
    named = config_file_values(path) if path else {}
    changed = {
        entry.name for entry in options() if getattr(getattr(config, entry.section), entry.name) != entry.default
    }
    idle = [name for name in named if name in of_dp_ssl_alone() & changed]
    if idle:
        more = f" and {len(idle) - N_SHOWN} more" if len(idle) > N_SHOWN else ""
        print(
            f"note: {path}: --method {config.baseline.method} makes no use of {', '.join(idle[:N_SHOWN])}{more}, of "
            "DP-SSL's own steps",
            file=sys.stderr,
        )


class _Collect(argparse.Action):
    """Gather the settings given as flags in one dictionary, so that only they override the preset."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        namespace.set = {**namespace.set, self.dest: values}


def add_settings(
    command: argparse.ArgumentParser, sections: Sequence[str] | None = None, without: Sequence[str] = ()
) -> None:
    command.set_defaults(set={})
    groups: dict[str, Any] = {}
    for entry in options():
        if (sections is not None and entry.section not in sections) or entry.name in without:
            continue
        if entry.section not in groups:
            groups[entry.section] = command.add_argument_group(entry.section)
        shown = " ".join(map(str, entry.default)) if isinstance(entry.default, tuple) else entry.default
        groups[entry.section].add_argument(
            flag(entry.name),
            action=_Collect,
            dest=entry.name,
            nargs="+" if isinstance(entry.default, tuple) else None,
            default=argparse.SUPPRESS,
            metavar=entry.metavar,
            help=f"{entry.help} (default: {shown})".replace("%", "%%"),
        )

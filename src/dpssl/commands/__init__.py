"""The commands of `dpssl`, one module a subject."""

from dpssl.commands import data, export, fit, predict, steps
from dpssl.commands.command import Command

ALL: tuple[Command, ...] = (*steps.COMMANDS, *data.COMMANDS, *fit.COMMANDS, *export.COMMANDS, *predict.COMMANDS)

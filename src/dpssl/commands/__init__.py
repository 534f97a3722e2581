"""The commands of `dpssl`, one module a subject."""

from dpssl.commands import data, export, fit, paper, predict, report, steps
from dpssl.commands.command import Command

ALL: tuple[Command, ...] = (
    *steps.COMMANDS,
    *report.COMMANDS,
    *data.COMMANDS,
    *fit.COMMANDS,
    *export.COMMANDS,
    *predict.COMMANDS,
    *paper.COMMANDS,
)

"""The commands of `dpssl`, one module a subject."""

from dpssl.commands import combine, data, export, fit, paper, predict, refine, report, review, steps
from dpssl.commands.command import Command

ALL: tuple[Command, ...] = (
    *steps.COMMANDS,
    *report.COMMANDS,
    *review.COMMANDS,
    *refine.COMMANDS,
    *combine.COMMANDS,
    *data.COMMANDS,
    *fit.COMMANDS,
    *export.COMMANDS,
    *predict.COMMANDS,
    *paper.COMMANDS,
)

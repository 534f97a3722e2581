"""The figures that the paper prints, as text, from paper_numbers.toml."""

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any

NUMBER = r"(\d+(?:\.\d+)?)"
MEAN = re.compile(rf"{NUMBER}(?:±{NUMBER})?")
RANGE = re.compile(rf"{NUMBER}(?: to |, {NUMBER}, ){NUMBER}")


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads((resources.files("dpssl.paper") / "paper_numbers.toml").read_text(encoding="utf-8"))


def printed(table: str, data: str, row: str, n_labels: int) -> str:
    """What the paper prints there; empty where it prints nothing."""
    section = _document()[table].get(data, {})
    figures = section.get(row)
    return str(figures[section["labels"].index(n_labels)]) if figures and n_labels in section["labels"] else ""


def printed_accuracy(data: str, n_lfs: int, column: int) -> str:
    """A figure of Table 5, by its K and the place of its rho."""
    row = _document()["table5"].get(data, {}).get(str(n_lfs))
    return str(row[column]) if row else ""


def printed_error(data: str, n_lfs: int, column: int) -> str:
    """The error rate that Figure 3 draws of it."""
    accuracy = printed_accuracy(data, n_lfs, column)
    return f"{100 - float(accuracy):.2f}" if accuracy else ""


def printed_specialists(data: str, class_name: str) -> str:
    return str(_document()["fig-specialists"].get(data, {}).get(class_name, ""))


def as_number(text: str) -> tuple[float, float] | None:
    """Mean and standard deviation of a printed figure (0 without one); None where it is no single number."""
    found = MEAN.fullmatch(text)
    return (float(found[1]), float(found[2] or 0)) if found else None


def as_range(text: str) -> tuple[float, float | None, float] | None:
    """Least, median and greatest of a printed range, with no median where the ends alone are printed; None if it is no
    range.
    """
    found = RANGE.fullmatch(text)
    return (float(found[1]), float(found[2]) if found[2] else None, float(found[3])) if found else None

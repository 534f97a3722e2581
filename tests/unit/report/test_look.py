"""Colours that everyone can read, on light and dark paper, and plots that follow them."""

import re

import matplotlib
import pytest
from matplotlib.axes import Axes

from dpssl.report.figures import HEAT_ALPHA, VARIABLES, draw
from dpssl.report.page import style_sheet

Color = tuple[float, float, float]


def schemes() -> dict[str, dict[str, Color]]:
    light, dark = re.findall(r":root \{(.*?)\}", style_sheet(), re.DOTALL)
    colors = {}
    for name, block in (("light", light), ("dark", light + dark)):
        colors[name] = {
            variable: tuple(int(value[at : at + 2], 16) / 255 for at in (0, 2, 4))
            for variable, value in re.findall(r"(--[\w-]+): #(\w{6});", block)
        }
    return colors


def luminance(color: Color) -> float:
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    """WCAG 2's contrast ratio."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out(scheme: str) -> None:
    colors = schemes()[scheme]
    for text in ("--ink", "--muted", "--link"):
        for paper in ("--paper", "--page"):
            assert contrast(colors[text], colors[paper]) >= 4.5, (text, paper)
    assert contrast(colors["--tag-ink"], colors["--tag-paper"]) >= 4.5
    for line in ("--blue", "--vermilion", "--green", "--purple"):
        assert contrast(colors[line], colors["--paper"]) >= 3, line
    darkest_cell = tuple(
        HEAT_ALPHA * heat + (1 - HEAT_ALPHA) * paper
        for heat, paper in zip(colors["--heat"], colors["--paper"], strict=True)
    )
    assert contrast(colors["--ink"], darkest_cell) >= 4.5, "numbers on the heat map"


def test_every_colour_of_a_plot_is_one_of_the_page() -> None:
    assert set(VARIABLES.values()) <= schemes()["light"].keys()

    def paint(axes: Axes) -> None:
        axes.plot([1, 2], [1, 2], color="#0072b2", label="a line")
        axes.set_xlabel("$not \\maths$ <b> & #010101")
        axes.legend()

    drawing = draw("key", "Title <1>", "Said & done", paint)
    assert "var(--blue)" in drawing.svg
    assert re.findall(r'style="[^"]*#[0-9a-f]{6}[^"]*"', drawing.svg) == []
    assert "$not \\maths$ &lt;b&gt; &amp; #010101" in drawing.svg, "text is left alone"
    assert '<title id="key-title">Title &lt;1&gt;</title>' in drawing.svg
    assert "font-family" not in drawing.svg
    assert "<style" not in drawing.svg


def test_the_users_own_matplotlib_settings_do_not_show() -> None:
    def paint(axes: Axes) -> None:
        axes.plot([1, 2], [1, 2])

    before = draw("key", "title", "description", paint)
    with matplotlib.rc_context({"axes.facecolor": "red", "lines.linewidth": 9}):
        assert draw("key", "title", "description", paint) == before
        assert matplotlib.rcParams["lines.linewidth"] == 9

"""A plot as inline SVG that follows the page: its colours are the style sheet's variables, light and dark alike.

Plots are painted in the stand-in colours below; in the finished SVG each becomes `var(--name)`. Text stays text, so it
is set in the page's font. Title and description serve those who cannot see the plot.
"""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID, PAPER = "#010101", "#020202", "#030303", "#fefefe"
# Okabe and Ito's colours, told apart by all common kinds of colour vision; the page lightens them on dark paper.
BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
HEAT = "#0072b3"  # the full shade of heat maps
VARIABLES = {
    INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper", BLUE: "--blue", VERMILION: "--vermilion",
    GREEN: "--green", PURPLE: "--purple", HEAT: "--heat",
}  # fmt: skip
SERIES = ((BLUE, "-"), (VERMILION, "--"), (GREEN, "-."), (PURPLE, ":"))  # colour never tells lines apart alone
HEAT_ALPHA = 0.75  # at most: numbers written on the darkest cell keep their contrast
FAINTEST = 0.07  # a value of 0 is told from an empty cell
HEAT_LEVELS = 24
MOST_VECTOR_CELLS = 10_000  # a heat map of more is one picture inside the SVG
WIDTH = 360  # of a plot, in its own units: the width of a phone, so that text there is as large as it is meant
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
LONG_NUMBER = re.compile(r"(\.\d)\d+")
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text as text
    "text.parse_math": False,  # a class may be called $x$
    "font.size": 11,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 11,
    "axes.unicode_minus": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "legend.frameon": False,
    "legend.fontsize": 10.5,
    "lines.linewidth": 1.8,
}


@dataclass(frozen=True)
class Drawing:
    """A plot for the page. `description` says in words what it shows; `needs_truth` marks evaluation."""

    key: str
    title: str
    description: str
    svg: str
    needs_truth: bool = False


def draw(
    key: str,
    title: str,
    description: str,
    paint: "Callable[[Axes], object]",
    *,
    height: float = 230,
    needs_truth: bool = False,
) -> Drawing:
    """Let `paint` draw on a pair of axes, and make the result part of the page; `key` is unique in it."""
    import matplotlib
    from matplotlib.figure import Figure

    # Not the user's own matplotlibrc: the page must come out the same everywhere.
    with (
        matplotlib.rc_context({**matplotlib.rcParamsDefault, **SETTINGS, "svg.hashsalt": key}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser has more fonts than matplotlib
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        paint(figure.add_subplot())
        content = io.BytesIO()
        figure.savefig(content, format="svg", transparent=True)
    return Drawing(key, title, description, _inline(content.getvalue(), key, title, description), needs_truth)


def _inline(content: bytes, key: str, title: str, description: str) -> str:
    """What matplotlib wrote as an element of a page: no global styles, no ids that repeat, the page's colours."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(content)
    for parent in list(root.iter()):
        parent[:] = [child for child in parent if not _is_idle(child)]
        for child in parent:
            child.tail = None
        if len(parent):
            parent.text = None
    for element in root.iter():
        if element.tag == f"{{{SVG}}}g":
            element.attrib.pop("id", None)
        if "style" in element.attrib:
            element.set("style", _page_style(element.attrib["style"]))
        for name in ("d", "x", "y", "transform"):
            if name in element.attrib:
                element.set(name, LONG_NUMBER.sub(r"\1", " ".join(element.attrib[name].split())))
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{key}-title {key}-description")
    for position, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(
            f"{{{SVG}}}{tag}", {"id": f"{key}-{'title' if tag == 'title' else 'description'}"}
        )
        element.text = text
        root.insert(position, element)
    return ElementTree.tostring(root, encoding="unicode")


def _is_idle(element: ElementTree.Element) -> bool:
    """Draws nothing: notes on the file, a style sheet of its own, paths without colour such as empty cells."""
    if element.tag == f"{{{SVG}}}defs":
        return len(element) > 0 and all(child.tag == f"{{{SVG}}}style" for child in element)
    return element.tag == f"{{{SVG}}}metadata" or element.attrib.get("style") == "fill: none"


def _page_style(style: str) -> str:
    kept = [part for part in style.split(";") if not part.strip().startswith(("font-family", "font:"))]
    style = ";".join(kept)
    for color, variable in VARIABLES.items():
        style = style.replace(color, f"var({variable})")
    return style


# What several plots are painted with


def bars(axes: "Axes", names: Sequence[str], values: Any, color: str = BLUE) -> None:
    """Horizontal bars, the first on top."""
    positions = list(range(len(names)))
    axes.barh(positions, values, color=color, height=0.7)
    axes.set_yticks(positions, list(names))
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


def marks(axes: "Axes", values: Any, label: str) -> None:
    """A diamond on each of `bars`, with its legend above the plot."""
    axes.plot(
        values, range(len(values)), "D", color=VERMILION, markersize=6, markeredgecolor=PAPER, markeredgewidth=0.8,
        label=label,
    )  # fmt: skip
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0))


def bars_height(n_bars: int) -> float:
    return 84 + 17 * n_bars


def heat_map(axes: "Axes", values: Any, most: float, label: str) -> None:
    """`values` (rows, columns), row 0 on top, from the faintest shade at 0 to the full one at `most`; NaN is empty."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    shades = [to_rgba(HEAT, FAINTEST), to_rgba(HEAT, HEAT_ALPHA)]
    colors = LinearSegmentedColormap.from_list("heat", shades, N=HEAT_LEVELS)
    axes.grid(False)
    mesh = axes.pcolormesh(values, cmap=colors, vmin=0, vmax=most or 1.0, rasterized=values.size > MOST_VECTOR_CELLS)
    axes.set_ylim(len(values), 0)
    bar = axes.figure.colorbar(mesh, ax=axes, location="top", fraction=0.05, pad=0.02, aspect=40)
    bar.set_label(label)
    bar.outline.set_visible(False)


def plain_log_scale(axes: "Axes") -> None:
    """Powers of ten written out: the usual 10³ is mathematics, which plots here never parse."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def whole_numbers(axes: "Axes") -> None:
    """Ticks of the horizontal axis at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def tick_names(names: Sequence[str], most: int) -> tuple[list[float], list[str]]:
    """Where to write which names along an axis of cells, so that at most `most` of them are written."""
    every = -(-len(names) // most)
    return [position + 0.5 for position in range(0, len(names), every)], list(names[::every])

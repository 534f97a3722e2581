"""The report as a person meets it: opened from disk, at a desk and on a phone, by day and by night, printed."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Named so that a page which trusts names would show it: an alert, a broken layout, text turned around.
CLASS_NAMES = ("zero", "<img src=x onerror=alert(1)>", "\u202ethree", "four " * 30, "$5$", *"56789")
DATA = """
import sys
import numpy as np
from sklearn.datasets import load_digits
pixels, truth = load_digits(return_X_y=True)
names = {names!r}
np.savez(sys.argv[1], train_x=(pixels[:700].reshape(-1, 8, 8) * 15).astype(np.uint8), train_y=truth[:700],
         class_names=np.array(names), ids=np.array([f"<b>{{row}}</b>.png" for row in range(700)]))
"""
FLAGS = (
    "--preset", "digits", "--n-lfs", 12, "--steps", 60, "--mcl-min-steps", 20, "--mcl-max-steps", 40,
    "--end-steps", 20, "--window", 10, "--mcl-window", 10, "--device", "cpu", "--threads", 1,
)  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a short run on digits under hostile names."""
    folder = tmp_path_factory.mktemp("report")
    subprocess.run([sys.executable, "-c", DATA.format(names=CLASS_NAMES), folder / "data.npz"], check=True)
    command = [sys.executable, "-m", "dpssl", "run", "--data", "data.npz", "--out", "run", *map(str, FLAGS)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "run" / "report.html"


@pytest.mark.parametrize(("device", "scheme"), [*itertools.product(("desktop", "phone"), ("light", "dark"))])
def test_it_fits_the_screen_and_everyone_can_use_it(
    report: Path, open_page: Callable[..., Any], screenshots: Path, device: str, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = open_page(report.as_uri(), device, scheme)
    page.screenshot(path=screenshots / f"report-{device}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "the page scrolls sideways"
    found = Axe().run(page).response["violations"]
    assert [
        (rule["id"], node["html"][:200])
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ] == []


def test_names_are_shown_and_do_nothing(report: Path, open_page: Callable[..., Any]) -> None:
    page = open_page(report.as_uri())
    assert page.locator("script, b").count() == 0
    assert page.locator("img:not([src^='data:image/'])").count() == 0
    assert page.locator("th", has_text="<img src=x onerror=alert(1)>").count() == 1
    assert page.locator("svg text", has_text="$5$").count() > 0


def test_every_picture_and_plot_is_drawn(report: Path, open_page: Callable[..., Any]) -> None:
    page = open_page(report.as_uri())
    assert page.locator("img").count() > 10
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert page.locator("figure svg").count() == 15
    assert page.evaluate("[...document.querySelectorAll('figure svg')].every(svg => svg.getBBox().width > 200)")


def test_links_lead_to_their_sections_and_folded_parts_open(report: Path, open_page: Callable[..., Any]) -> None:
    page = open_page(report.as_uri())
    for link in page.locator("nav a").all():
        link.click()
        assert page.locator(page.evaluate("location.hash")).count() == 1
    settings = page.locator("details").get_by_text("--n-lfs", exact=True)
    assert not settings.is_visible()
    page.get_by_text("All settings").click()
    assert settings.is_visible()


def test_it_prints_in_light_colours_with_folded_parts_open(report: Path, open_page: Callable[..., Any]) -> None:
    page = open_page(report.as_uri(), scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ink')") == "#1b2026"
    assert not page.locator("nav").is_visible()
    assert page.locator("details").get_by_text("--n-lfs", exact=True).is_visible()
    assert page.pdf().startswith(b"%PDF")

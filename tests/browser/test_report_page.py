"""The report as a person meets it: opened from disk, at a desk and on a phone, by day and by night, printed."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def report(hostile_run: Path) -> Path:
    return hostile_run / "report.html"


@pytest.mark.parametrize(("device", "scheme"), [*itertools.product(("desktop", "phone"), ("light", "dark"))])
def test_it_fits_the_screen_and_everyone_can_use_it(
    report: Path, open_page: Callable[..., Any], screenshots: Path, serious_findings: Any, device: str, scheme: str
) -> None:
    page = open_page(report.as_uri(), device, scheme)
    page.screenshot(path=screenshots / f"report-{device}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "the page scrolls sideways"
    assert serious_findings(page) == []


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

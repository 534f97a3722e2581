"""Headless Chromium, what a page writes to its console, and a folder for screenshots."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium here: `make browser` gets one")
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox refuses to run as root, as containers do; the pages are our own.
    args = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=args)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """`open_page(address, "phone", "dark")`; what it writes to the console or asks the network for is an error."""
    contexts, complaints = [], []

    def start(address: str, device: str = "desktop", scheme: str = "light") -> Any:
        viewport = {"width": WIDTHS[device], "height": 900}
        context = chromium.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
        page.goto(address)
        return page

    yield start
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def screenshots(repo_root: Path) -> Path:
    folder = repo_root / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder

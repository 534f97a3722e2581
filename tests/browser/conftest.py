"""Headless Chromium, what a page writes to its console, a folder for screenshots, and a run under hostile names."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = {"desktop": 1280, "phone": 390}
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


def _unasked_failure(request: Any) -> list[str]:
    """A request that failed, unless the page that asked was left or reloaded: the browser then breaks it off itself."""
    return [] if request.failure == "net::ERR_ABORTED" else [f"failed: {request.url} ({request.failure})"]


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """`open_page(address, "phone", "dark")`; what it writes to the console or asks the network for is an error.

    `context` is that of an earlier page, for a second tab; `may_fail` is for a page whose server will be killed.
    """
    contexts, complaints = [], []

    def start(
        address: str, device: str = "desktop", scheme: str = "light", context: Any = None, may_fail: bool = False
    ) -> Any:
        viewport = {"width": WIDTHS[device], "height": 900}
        if context is None:
            context = chromium.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
            contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if not may_fail:
            page.on("console", lambda message: complaints.append(message.text))
            page.on("requestfailed", lambda request: complaints.extend(_unasked_failure(request)))
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


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run on digits under hostile names. Tests that write to it take a copy."""
    folder = tmp_path_factory.mktemp("hostile")
    subprocess.run([sys.executable, "-c", DATA.format(names=CLASS_NAMES), folder / "data.npz"], check=True)
    command = [sys.executable, "-m", "dpssl", "run", "--data", "data.npz", "--out", "run", *map(str, FLAGS)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="session")
def serious_findings() -> Callable[[Any], list[tuple[str, str]]]:
    """What axe-core finds serious or critical about a page: rule and element."""
    from axe_playwright_python.sync_playwright import Axe

    def look(page: Any) -> list[tuple[str, str]]:
        return [
            (rule["id"], node["html"][:200])
            for rule in Axe().run(page).response["violations"]
            if rule["impact"] in ("serious", "critical")
            for node in rule["nodes"]
        ]

    return look

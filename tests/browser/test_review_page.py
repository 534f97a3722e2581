"""The review page as a person uses it: by keyboard, in two tabs, after a reload, and with the server killed."""

import csv
import itertools
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytestmark = [pytest.mark.browser, pytest.mark.slow]


class Server:
    """The page of a run, in this process; `Killable` is `dpssl review` in a process of its own."""

    def __init__(self, run: Path) -> None:
        from dpssl.report.contents import read_contents
        from dpssl.review.server import ReviewServer
        from dpssl.runs import open_run

        self.run = run
        opened = open_run(run, writes=False, progress=False)
        contents = read_contents(opened.folder, opened.config, {}, opened.dataset, opened.split)
        self.server = ReviewServer(contents, "Ada")
        self.address = self.server.address
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()

    def end(self) -> None:
        self.server.stop()
        self.thread.join()
        self.server.close()

    def decisions(self) -> list[list[str]]:
        """id, old, new of every row so far."""
        path = self.run / "corrections.csv"
        if not path.exists():
            return []
        with path.open(newline="", encoding="utf-8") as table:
            return [row[:3] for row in csv.reader(table)][1:]


class Killable(Server):
    def __init__(self, run: Path) -> None:
        self.run = run
        command = [sys.executable, "-m", "dpssl", "review", str(run), "--who", "Ada"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("Review: http://127.0.0.1:"), self.process.stderr.read()
        self.address = line.split()[-1]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def serve(hostile_run: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """A copy of the short run with votes worth a review, and its page."""
    run = tmp_path / "run"
    shutil.copytree(hostile_run, run)
    write_better_votes(run)
    servers: list[Server] = []

    def start(kind: type[Server] = Server) -> Server:
        servers.append(kind(run))
        return servers[-1]

    yield start
    for server in servers:
        server.end()


def write_better_votes(run: Path) -> None:
    """A minute of training names few classes; made-up votes, right three times in four, show the page at work."""
    from sklearn.datasets import load_digits

    from dpssl.label_model import LabelModel
    from dpssl.run_folder import RunFolder
    from dpssl.step_files import VoteFile

    folder, draws = RunFolder(run), np.random.default_rng(0)
    file = folder.read_votes()
    truth = load_digits().target[[int(re.sub(r"\D", "", str(name))) for name in file.ids]]  # ids are <b>12</b>.png
    shape, n_classes = file.votes.shape, len(file.class_names)
    guess = np.where(draws.random(shape) < 0.75, truth[:, None], draws.integers(0, n_classes, shape))
    votes = np.where(draws.random(shape) < 0.5, guess, -1)
    specialties = np.ones((shape[1], n_classes), bool)
    folder.write_votes(VoteFile(votes, draws.uniform(0.6, 1, shape), specialties, file.ids, file.class_names))
    model = LabelModel(n_classes, "majority").fit(votes, specialties=specialties)
    folder.write_soft_labels(file.ids, file.class_names, model.predict_proba(votes), (votes >= 0).any(axis=1))


def ready(page: Any) -> Any:
    page.wait_for_selector("body[data-ready]")
    return page


def current(page: Any) -> Any:
    return page.locator(".tile[aria-current=true]")


def saved(page: Any, server: Server, n_rows: int) -> list[list[str]]:
    """The rows of the file, once there are as many."""
    for _ in range(200):
        if len(server.decisions()) >= n_rows:
            break
        page.wait_for_timeout(50)
    found = server.decisions()
    assert len(found) == n_rows
    return found


def shows(page: Any, place: str, text: str) -> None:
    page.locator(place, has_text=text).wait_for()


@pytest.mark.parametrize(("device", "scheme"), [*itertools.product(("desktop", "phone"), ("light", "dark"))])
def test_it_fits_the_screen_and_everyone_can_use_it(
    serve: Any, open_page: Any, screenshots: Path, serious_findings: Any, device: str, scheme: str
) -> None:
    page = ready(open_page(serve().address, device, scheme))
    for key in ("Enter", "3", "n", "s"):
        page.keyboard.press(key)
    shows(page, "#statistics", "2 corrected")
    for view in ("grid", "single"):
        page.wait_for_load_state("networkidle")
        page.screenshot(path=screenshots / f"review-{view}-{device}-{scheme}.png")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"
        assert serious_findings(page) == []
        page.keyboard.press("g")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    assert serious_findings(page) == []


def test_labels_are_given_by_keyboard_and_taken_back(serve: Any, open_page: Any) -> None:
    server = serve()
    page = ready(open_page(server.address))
    assert "token" not in page.url
    first = page.locator(".tile").nth(0)
    page.keyboard.press("6")
    assert first.get_attribute("data-state") in ("changed", "kept")
    assert current(page).get_attribute("data-at") == "1", "on to the next"
    page.keyboard.press("n")
    page.keyboard.press("s")
    page.keyboard.press("Enter")
    assert current(page).get_attribute("data-at") == "4"
    rows = saved(page, server, 3)
    assert [row[2] for row in rows[:2]] == ["5", "-"]
    assert rows[2][1] == rows[2][2] != ""
    page.keyboard.press("u")
    page.wait_for_selector(".tile[data-at='3'][data-state=open]")
    assert current(page).get_attribute("data-at") == "3"
    page.keyboard.press("Control+z")
    page.wait_for_selector(".tile[data-at='1'][data-state=open]")
    assert saved(page, server, 5)[-1][1:] == ["-", ""]


def test_arrows_home_end_and_pages_move(serve: Any, open_page: Any) -> None:
    page = ready(open_page(serve().address))
    columns = page.evaluate(
        "[...document.querySelectorAll('.tile')].filter((tile, _, all) => tile.offsetTop === all[0].offsetTop).length"
    )
    for key, at in (("ArrowRight", 1), ("ArrowDown", 1 + columns), ("ArrowLeft", columns), ("ArrowUp", 0), ("End", 39)):
        page.keyboard.press(key)
        assert current(page).get_attribute("data-at") == str(at), key
    page.keyboard.press("ArrowRight")
    shows(page, "#place", "41–80 of")
    page.keyboard.press("PageUp")
    shows(page, "#place", "1–40 of")
    assert page.evaluate("document.activeElement.classList.contains('tile')")


def test_what_does_not_fit_beside_the_images_is_scrolled_by_keyboard(serve: Any, open_page: Any) -> None:
    page = ready(open_page(serve().address))
    before, pane = current(page).get_attribute("data-at"), page.locator("#detail")
    pane.locator("h3").first.wait_for()
    pane.evaluate("pane => { pane.style.maxHeight = '10rem' }")
    current(page).focus()
    page.keyboard.press("Tab")
    assert pane.evaluate("pane => document.activeElement === pane")
    page.keyboard.press("ArrowDown")
    for _ in range(100):  # a smooth scroll takes its time
        if pane.evaluate("pane => pane.scrollTop") > 0:
            break
        page.wait_for_timeout(20)
    assert pane.evaluate("pane => pane.scrollTop") > 0
    assert current(page).get_attribute("data-at") == before


def test_a_whole_page_is_correct_at_once(serve: Any, open_page: Any) -> None:
    server = serve()
    page = ready(open_page(server.address))
    page.locator("#order").select_option("class-0")
    page.wait_for_url("**order=class**")
    n_tiles = page.locator(".tile").count()
    page.keyboard.press("Shift+Enter")
    rows = saved(page, server, n_tiles)
    assert {tuple(row[1:]) for row in rows} == {("zero", "zero")}
    page.keyboard.press("u")
    assert len(saved(page, server, 2 * n_tiles)) == 2 * n_tiles
    shows(page, "#statistics", "0 of 560 images reviewed")


def test_a_reload_leads_back_to_the_place_and_its_decisions(serve: Any, open_page: Any) -> None:
    page = ready(open_page(serve().address))
    page.keyboard.press("PageDown")
    shows(page, "#place", "41–80 of")
    page.keyboard.press("g")
    for key in ("3", "4"):
        page.keyboard.press(key)
    shows(page, "#statistics", "2 of 560 images reviewed")
    page.reload()
    ready(page)
    assert page.locator("#place").inner_text().startswith("41–80")
    assert page.locator("#main.single").count() == 1
    assert current(page).get_attribute("data-at") == "2"
    assert page.locator(".tile[data-state=open]").count() == 38


def test_two_tabs_see_each_other(serve: Any, open_page: Any) -> None:
    server = serve()
    one = ready(open_page(server.address))
    other = ready(open_page(server.address, context=one.context))
    one.bring_to_front()
    one.keyboard.press("n")
    other.bring_to_front()
    other.wait_for_selector(".tile[data-at='0'][data-state=out]")
    other.keyboard.press("u")
    one.bring_to_front()
    one.wait_for_selector(".tile[data-at='0'][data-state=open]")
    assert [row[2] for row in server.decisions()] == ["-", ""]


def test_a_killed_server_loses_nothing_and_the_page_says_what_was_not_saved(serve: Any, open_page: Any) -> None:
    server = serve(Killable)
    page = ready(open_page(server.address, may_fail=True))
    for key in ("1", "3", "n"):
        page.keyboard.press(key)
    before = saved(page, server, 3)
    server.end()
    page.keyboard.press("4")
    page.wait_for_selector("#notice:has-text('was not saved')")
    assert page.locator(".tile[data-at='3']").get_attribute("data-state") == "open"
    again = serve(Killable)
    assert again.decisions() == before
    page = ready(open_page(again.address))
    assert [page.locator(f".tile[data-at='{at}']").get_attribute("data-state") == "open" for at in range(4)] == [
        False, False, False, True,
    ]  # fmt: skip
    assert current(page).get_attribute("data-at") == "3"
    page.keyboard.press("u")
    page.wait_for_selector(".tile[data-at='2'][data-state=open]")


def test_search_and_the_reasons(serve: Any, open_page: Any) -> None:
    page = ready(open_page(serve().address))
    page.keyboard.press("/")
    page.keyboard.type("<b>12</b>")
    page.wait_for_url("**order=search**")
    assert page.locator(".tile").count() == 1
    page.keyboard.press("Escape")
    detail = page.locator("#detail")
    detail.get_by_text("<b>12</b>.png").wait_for()
    assert detail.locator(".probabilities li").count() > 1
    assert detail.locator(".lf").count() > 1
    assert detail.locator(".pictures img").count() == 5


def test_names_are_shown_and_do_nothing(serve: Any, open_page: Any) -> None:
    page = ready(open_page(serve().address))
    page.locator("#detail h2").wait_for()
    assert page.locator("b, img[src='x']").count() == 0
    assert page.locator("#classes button", has_text="<img src=x onerror=alert(1)>").count() == 1
    assert page.evaluate("[...document.images].every(image => !image.complete || image.naturalWidth > 0)")


def test_by_touch_alone(serve: Any, open_page: Any) -> None:
    server = serve()
    page = ready(open_page(server.address, "phone"))
    page.locator(".tile").nth(2).click()
    page.locator("#classes button", has_text="zero").click()
    page.get_by_role("button", name="None").click()
    assert [row[2] for row in saved(page, server, 2)] == ["zero", "-"]
    page.get_by_role("button", name="Undo").click()
    assert saved(page, server, 3)[-1][1:] == ["-", ""]

"""The review page's requests: what they answer, and what strangers, other sites and odd bodies get."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl.review.guard import MOST_BODY, REFUSALS, WRITES
from dpssl.review.server import allowed_hosts, is_loopback
from dpssl.review.session import ReviewSession

pytest.importorskip("fastapi")

EVERY_ADDRESS = (
    "/", "/static/main.js", "/static/style.css", "/static/favicon.svg", "/pictures/0", "/api/run", "/api/images",
    "/api/images/0", "/api/changes?since=0",
)  # fmt: skip


def decisions(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    with path.open(newline="") as table:
        return [row[:3] for row in csv.reader(table)][1:]


# What it answers


def test_a_page_of_the_queue(page: Any) -> None:
    found = page.get("/api/images?count=10").json()
    assert (found["start"], found["total"], len(found["images"]), found["n_decided"]) == (0, 108, 10, 0)
    assert [image["row"] for image in found["images"]] == page.session.queue.useful[:10].tolist()
    image = found["images"][0]
    assert image["decision"] == -2
    assert image["id"] == f"image-{image['row']}"


def test_decisions_are_written_shown_and_taken_back(page: Any, corrections: Path) -> None:
    rows = [image["row"] for image in page.get("/api/images?count=3").json()["images"]]
    labels = [image["label"] for image in page.get("/api/images?count=3").json()["images"]]
    names = page.session.contents.class_names
    found = page.post("/api/decisions", {"changes": [{"row": rows[0], "label": (labels[0] + 1) % 3}]}).json()
    assert found["decisions"] == [[rows[0], (labels[0] + 1) % 3]]
    assert (found["n_reviewed"], found["n_changed"], found["can_undo"]) == (1, 1, True)
    page.post("/api/decisions", {"changes": [{"row": row, "label": -1} for row in rows[1:]]})
    assert decisions(corrections)[0] == [f"image-{rows[0]}", names[labels[0]], names[(labels[0] + 1) % 3]]
    assert page.get("/api/images?count=3").json()["n_decided"] == 3
    reviewed = page.get("/api/images?order=reviewed").json()
    assert [image["row"] for image in reviewed["images"]] == [rows[2], rows[1], rows[0]]
    assert page.post("/api/undo").json()["decisions"] == [[row, -2] for row in rows[1:]]
    assert page.get("/api/changes?since=1").json()["decisions"] == [[row, -2] for row in rows[1:]]
    assert page.get("/api/images?count=3").json()["n_reviewed"] == 1


def test_a_page_opens_where_work_is_left(page: Any) -> None:
    rows = page.session.queue.useful[:12].tolist()
    page.post("/api/decisions", {"changes": [{"row": row, "label": 0} for row in rows]})
    assert page.get("/api/images?count=5").json()["start"] == 10
    assert page.get("/api/images?count=5&start=9999").json()["start"] == 105


def test_an_explanation_has_votes_probabilities_and_neighbours(page: Any) -> None:
    contents = page.session.contents
    row = int(contents.split.unlabeled[3])
    found = page.get(f"/api/images/{row}").json()
    said = {(lf["lf"], group["label"]) for group in found["votes"] for lf in group["lfs"]}
    votes = contents.votes.votes[row]
    assert said == {(lf, int(vote)) for lf, vote in enumerate(votes) if vote >= 0}
    assert [label for label, _ in found["probabilities"]] == np.argsort(
        -contents.soft_labels.soft_labels[row], kind="stable"
    ).tolist()
    features = contents.embeddings.astype(float)
    labeled = contents.split.labeled
    nearest = labeled[np.argsort(np.linalg.norm(features[labeled] - features[row], axis=1))[:5]]
    assert {item["row"] for item in found["neighbours"]} == set(nearest.tolist())


def test_a_run_of_another_method_can_be_reviewed(make_run: Any) -> None:
    session = ReviewSession(make_run(files=("labels",)).contents(), "Ada")
    assert session.explain(50)["votes"] == []
    assert session.page("useful", None, 5)["total"] == 108
    session.close()


def test_pictures_are_pictures(page: Any) -> None:
    small = page.get("/pictures/3")
    assert (small.status, small.headers["content-type"]) == (200, "image/png")
    assert small.body.startswith(b"\x89PNG")
    assert page.get("/pictures/3?large=true").status == 200


def test_the_truth_is_not_shown(make_run: Any) -> None:
    answers = []
    for known in (True, False):
        session = ReviewSession(make_run(known_truth=known).contents(), "Ada")
        answers.append([session.page("useful", 0, 50), session.explain(60)])
        session.close()
    for answer in answers:
        answer[0].pop("session_minutes")
    assert answers[0] == answers[1]


# Who may ask


@pytest.mark.parametrize("address", EVERY_ADDRESS)
@pytest.mark.parametrize("token", [None, "", "wrong", "a-token-of-the-tesT"])
def test_nothing_is_answered_without_the_token(page: Any, address: str, token: str | None) -> None:
    assert page.get(address).status == 200
    refused = page.get(address, token=token)
    assert refused.status == 403
    assert refused.body.startswith(b"no token, or a wrong one: open the address")
    assert "set-cookie" not in refused.headers


def test_the_token_in_the_address_becomes_a_cookie_that_opens_the_rest(page: Any) -> None:
    first = page.get("/?token=a-token-of-the-test", token=None)
    assert first.status == 200
    cookie = first.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert page.get("/api/run", token=None, headers={"cookie": f"other=1; {cookie.split(';')[0]}"}).status == 200
    assert page.get("/api/run?token=a-token-of-the-test", token=None).status == 403, "elsewhere it would be logged"
    assert page.get("/", token=None, headers={"cookie": "=;;;\x01"}).status == 403


@pytest.mark.parametrize("host", [None, "", "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.7"])
def test_another_name_for_this_machine_is_refused(page: Any, host: str | None) -> None:
    assert page.get("/api/run", host=host).status == 403


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "[::1]"])
def test_own_names_are_taken(page: Any, host: str) -> None:
    assert page.get("/api/run", host=host).status == 200


def test_open_to_a_network_numbers_and_its_name_are_taken_and_no_other_name(page: Any) -> None:
    page.app.hosts = allowed_hosts("box.example")
    for host, status in (("box.example:8000", 200), ("192.168.0.3:8000", 200), ("evil.example:8000", 403)):
        assert page.get("/api/run", host=host).status == status
    assert [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "box.example")] == [
        True, True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": None},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:8000"},
        {"origin": "http://127.0.0.1:8001"},
        {"sec-fetch-site": "cross-site"},
        {"content-type": "text/plain"},
        {"content-type": None},
    ],
)
def test_a_page_of_another_site_cannot_write(page: Any, corrections: Path, headers: dict[str, Any]) -> None:
    action = {"changes": [{"row": 1, "label": 0}]}
    for address, body in (("/api/decisions", action), ("/api/undo", {})):
        assert page.post(address, body, headers=headers).status == 403
    assert decisions(corrections) == []


@pytest.mark.parametrize(
    "address",
    [
        "/static/../session.py", "/static/..%2Fsession.py", "/static//etc/passwd", "/static/%2e%2e/app.py",
        "/pictures/../../config.toml", "/pictures/-1", "/pictures/120", "/pictures/image-3", "/pictures/1e1",
        "/api/images/120", "/api/images/-1", "/../corrections.csv", "/corrections.csv", "/docs", "/openapi.json",
        "/pictures/99999999999999999999999999",
    ],
)  # fmt: skip
def test_no_path_reaches_the_disk(page: Any, address: str) -> None:
    answer = page.get(address)
    assert answer.status in (404, 422)
    assert b"import" not in answer.body


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"{}", b'{"changes": []}', b'{"changes": {}}',
        b'{"changes": [{"row": 1}]}', b'{"changes": [{"row": "1", "label": 0}]}',
        b'{"changes": [{"row": 1.5, "label": 0}]}', b'{"changes": [{"row": true, "label": 0}]}',
        b'{"changes": [{"row": -1, "label": 0}]}', b'{"changes": [{"row": 120, "label": 0}]}',
        b'{"changes": [{"row": 1, "label": 3}]}', b'{"changes": [{"row": 1, "label": -2}]}',
        b'{"changes": [{"row": 1, "label": 0, "who": "x"}]}', b'{"changes": [{"row": 1, "label": 0}], "more": 1}',
        b'{"changes": [{"row": 1e400, "label": 0}]}', b"[" * 5000,
        json.dumps({"changes": [{"row": 1, "label": 0}] * 201}).encode(),
    ],
)  # fmt: skip
def test_a_malformed_body_changes_nothing(page: Any, corrections: Path, body: bytes) -> None:
    assert page.post("/api/decisions", body=body).status in (400, 422)
    assert decisions(corrections) == []


def test_one_bad_change_of_several_writes_none(page: Any, corrections: Path) -> None:
    changes = [{"row": 1, "label": 0}, {"row": 2, "label": 7}]
    refused = page.post("/api/decisions", {"changes": changes})
    assert (refused.status, refused.json()["detail"]) == (
        422,
        "class 7: this run has classes 0 to 2, and -1 for none",
    )
    assert decisions(corrections) == []


def test_a_large_body_is_not_read(page: Any, corrections: Path) -> None:
    assert page.post("/api/decisions", body=b"", headers={"content-length": str(MOST_BODY + 1)}).status == 413
    assert page.post("/api/decisions", body=b"", headers={"content-length": "-5"}).status == 413
    endless = [b" " * 8192] * 20  # in chunks, without a length
    assert page.ask(
        "POST",
        "/api/decisions",
        headers={"origin": "http://127.0.0.1:8000", "content-type": "application/json"},
        chunks=endless,
    ).status == 413  # fmt: skip
    assert decisions(corrections) == []


@pytest.mark.parametrize(
    "query", ["order=truth", "count=0", "count=100000", "start=-1", "order=class&label=3", f"text={'x' * 201}"]
)
def test_a_query_out_of_range_is_refused(page: Any, query: str) -> None:
    assert page.get(f"/api/images?{query}").status == 422


def test_a_flood_is_slowed(page: Any) -> None:
    now = [0.0]
    page.app.writes.clock = lambda: now[0]
    statuses = [page.post("/api/undo").status for _ in range(int(WRITES[1]) + 5)]
    assert statuses == [200] * int(WRITES[1]) + [429] * 5
    now[0] += 1
    assert page.post("/api/undo").status == 200


@pytest.mark.parametrize("refused", [{"token": "wrong"}, {"host": "evil.example"}, {"headers": {"origin": "null"}}])
def test_a_flood_of_strangers_is_slowed_and_leaves_the_owner_alone(page: Any, refused: dict[str, Any]) -> None:
    statuses = [page.post("/api/undo", **refused).status for _ in range(int(REFUSALS[1]) + 5)]
    assert statuses == [403] * int(REFUSALS[1]) + [429] * 5
    assert page.post("/api/undo").status == 200
    assert page.get("/api/run").status == 200
    assert page.get("/api/run", token="wrong").status == 429, "whatever they ask for"


def test_other_methods_are_refused(page: Any) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        answer = page.ask(
            method,
            "/api/decisions",
            headers={"origin": "http://127.0.0.1:8000", "content-type": "application/json"},
        )
        assert answer.status == 405


# What a browser is told


@pytest.mark.parametrize("address", [*EVERY_ADDRESS, "/nothing"])
def test_no_inline_script_runs_and_nothing_is_framed(page: Any, address: str) -> None:
    for answer in (page.get(address), page.get(address, token=None)):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers


def test_script_in_names_stays_text(make_run: Any) -> None:
    hostile = "<script>alert(1)</script>"
    ids = [hostile, *(f"{row}.png" for row in range(119))]
    session = ReviewSession(make_run(class_names=("cat", hostile, "\u202eowl"), ids=ids).contents(), "Ada")
    about = session.about()
    assert about["classes"] == ["cat", hostile, "\ufffdowl"], "shown as they are, but for what turns text around"
    assert session.page("search", 0, 5, text="<script>")["images"][0]["id"] == hostile
    session.close()


def test_the_page_itself_has_no_inline_script_or_style(page: Any) -> None:
    html = page.get("/").body.decode()
    assert re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL) == [""]
    assert not re.search(r"\son\w+=|\sstyle=|javascript:", html)
    scripts = [file for file in Path(__file__).parents[3].glob("src/dpssl/review/static/*.js")]
    assert len(scripts) > 3
    for script in scripts:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script.read_text())


def test_of_many_classes_each_image_comes_with_its_likeliest(make_run: Any) -> None:
    """Keys give those, so they must be there before the reasons are."""
    session = ReviewSession(make_run(n=300, class_names=[f"class {label}" for label in range(40)]).contents(), "Ada")
    image = session.page("useful", 0, 1)["images"][0]
    soft = session.contents.soft_labels.soft_labels[image["row"]]
    assert [label for label, _ in image["probabilities"]] == np.argsort(-soft, kind="stable")[:6].tolist()
    session.close()

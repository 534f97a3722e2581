"""Requests to the review page, spoken in ASGI itself: every header is as the test writes it."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dpssl.review.session import ReviewSession

TOKEN = "a-token-of-the-test"
HOST = "127.0.0.1:8000"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Page:
    """`page.get("/api/run")`; `token`, `host`, `origin` and any header can be another than the page's own."""

    def __init__(self, session: ReviewSession) -> None:
        from dpssl.review.app import make_app
        from dpssl.review.server import LOOPBACK

        self.session = session
        self.app = make_app(session, TOKEN, LOOPBACK)
        for rate in (self.app.reads, self.app.writes, self.app.refusals):  # time stands still
            rate.clock, rate._seen = lambda: 0.0, 0.0

    def get(self, path: str, **options: Any) -> Answer:
        return self.ask("GET", path, **options)

    def post(self, path: str, value: Any = None, **options: Any) -> Answer:
        body = options.pop("body", json.dumps(value or {}).encode())
        given = {"origin": f"http://{HOST}", "content-type": "application/json", **options.pop("headers", {})}
        return self.ask("POST", path, body=body, headers=given, **options)

    def ask(
        self,
        method: str,
        path: str,
        *,
        token: str | None = TOKEN,
        host: str | None = HOST,
        headers: Mapping[str, str | None] | None = None,
        body: bytes = b"",
        chunks: list[bytes] | None = None,
    ) -> Answer:
        sent: dict[str, str | None] = {"host": host, "x-dpssl-token": token, **(headers or {})}
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "method": method, "scheme": "http", "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "http_version": "1.1", "root_path": "", "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 9), "headers": [
                (name.encode(), value.encode()) for name, value in sent.items() if value is not None
            ],
        }  # fmt: skip
        parts = [body] if chunks is None else chunks
        received = iter(
            {"type": "http.request", "body": part, "more_body": at + 1 < len(parts)} for at, part in enumerate(parts)
        )
        answered: list[Any] = []

        async def receive() -> Any:
            return next(received, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            answered.append(message)

        with ThreadPoolExecutor(1) as thread:  # the browser's tests leave an event loop running in this one
            thread.submit(asyncio.run, self.app(scope, receive, send)).result()
        found = {name.decode(): value.decode() for name, value in answered[0]["headers"]}
        return Answer(answered[0]["status"], found, b"".join(message.get("body", b"") for message in answered[1:]))


@pytest.fixture
def made(make_run: Any) -> Any:
    return make_run(class_names=("cat", "dog", "owl"))


@pytest.fixture
def session(made: Any) -> Iterator[ReviewSession]:
    session = ReviewSession(made.contents(), "Ada")
    yield session
    session.close()


@pytest.fixture
def page(session: ReviewSession) -> Page:
    return Page(session)


@pytest.fixture
def corrections(made: Any) -> Path:
    return made.folder.path("corrections.csv")

"""Who may talk to the review page: an ASGI layer around the whole application.

Nothing behind it sees a request that lacks the token, names another host (DNS rebinding), writes from another site's
page, is larger than any page of ours sends, or comes faster than a person clicks. Those refused for who sends them are
counted by themselves: no stranger can use up what the owner may ask.
"""

import hmac
import ipaddress
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

TOKEN_HEADER = b"x-dpssl-token"
MOST_BODY = 64 * 1024  # bytes; a page of decisions has about 2,000
WRITES, READS, REFUSALS = (50.0, 200.0), (1000.0, 4000.0), (50.0, 200.0)  # a second, and at once
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
ASK_AGAIN = "open the address that `dpssl review` printed when it was started\n"


class Rate:
    """A bucket that refills by `per_second` up to `at_once`."""

    def __init__(self, per_second: float, at_once: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second, self.at_once, self.clock = per_second, at_once, clock
        self._left, self._seen = at_once, clock()

    def allows(self) -> bool:
        now = self.clock()
        self._left = min(self.at_once, self._left + (now - self._seen) * self.per_second)
        self._seen = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Guard:
    """Passes on what it may, answers everything else itself. `hosts` are the names the page is reached by."""

    def __init__(
        self, app: App, token: str, hosts: frozenset[str], cookie: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.app, self.token, self.hosts, self.cookie = app, token.encode(), hosts, cookie
        self.writes, self.reads, self.refusals = (Rate(*rate, clock) for rate in (WRITES, READS, REFUSALS))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} connections here")
        reads = scope["method"] in ("GET", "HEAD")
        headers = dict(scope["headers"])
        problem = self._stranger(scope, headers) or ("" if reads else _foreign(scope, headers))
        rate = self.refusals if problem else self.reads if reads else self.writes
        if not rate.allows():
            return await _refuse(send, 429, "too many requests at once\n")
        if problem:
            return await _refuse(send, 403, problem)
        body = b"" if reads else await _whole_body(headers, receive)
        if body is None:
            return await _refuse(send, 413, f"more than {MOST_BODY} bytes\n")
        await self.app(scope, _once(body, receive), self._with_headers(send, first=scope["path"] == "/"))

    def _stranger(self, scope: Message, headers: dict[bytes, bytes]) -> str:
        """Why the request is not from the one who started the review, or nothing."""
        if not _is_own_host(headers.get(b"host", b"").decode("latin-1"), self.hosts):
            return "wrong host: " + ASK_AGAIN
        offered = [headers.get(TOKEN_HEADER, b""), _cookie(headers, self.cookie)]
        if scope["path"] == "/":  # the address to begin with; it then becomes a cookie
            offered += [value.encode() for value in parse_qs(scope["query_string"].decode("latin-1")).get("token", [])]
        if not any([hmac.compare_digest(value, self.token) for value in offered]):  # all are compared
            return "no token, or a wrong one: " + ASK_AGAIN
        return ""

    def _with_headers(self, send: Send, first: bool) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = dict(HEADERS)
                if first:
                    extra["set-cookie"] = f"{self.cookie}={self.token.decode()}; Path=/; HttpOnly; SameSite=Strict"
                message["headers"] = [*message.get("headers", []), *_encoded(extra)]
                if not any(name == b"cache-control" for name, _ in message["headers"]):
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        return sending


def _is_own_host(given: str, hosts: frozenset[str]) -> bool:
    """Whether the Host header is one of `hosts`; where the page is open to a network, also any numeric address.

    A name can be made to point here by whoever owns it; a number cannot.
    """
    name = given.rsplit(":", 1)[0] if not given.endswith("]") else given
    name = name.strip("[]").lower()
    if name in hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return "*" in hosts


def _foreign(scope: Message, headers: dict[bytes, bytes]) -> str:
    """Why a write comes from a page of another site, or nothing. Browsers tell with each."""
    own = scope["scheme"].encode() + b"://" + headers[b"host"]
    if headers.get(b"origin") != own:
        return "the request does not come from the review page\n"
    if headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        return "the request comes from another site\n"
    if headers.get(b"content-type", b"").split(b";")[0].strip() != b"application/json":
        return "only JSON is taken\n"
    return ""


async def _whole_body(headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
    """The body, or None where it is too large, which is noticed before it is read where its length is told."""
    told = headers.get(b"content-length", b"0")
    if not told.isdigit() or int(told) > MOST_BODY:
        return None
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MOST_BODY:
            return None
    return body


def _once(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out the body that was read, then whatever comes after."""
    waiting = [body]

    async def receiving() -> Message:
        return {"type": "http.request", "body": waiting.pop(), "more_body": False} if waiting else await receive()

    return receiving


def _cookie(headers: dict[bytes, bytes], name: str) -> bytes:
    try:
        found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(name)
    except CookieError:
        return b""
    return found.value.encode() if found is not None else b""


async def _refuse(send: Send, status: int, reason: str) -> None:
    headers = _encoded({**HEADERS, "content-type": "text/plain; charset=utf-8", "cache-control": "no-store"})
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": reason.encode()})


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]

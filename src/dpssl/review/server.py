"""The review page on an address of this machine, until Ctrl-C."""

import ipaddress
import secrets
import socket
import sys

from dpssl.errors import DPSSLError, InputError
from dpssl.report.contents import RunContents
from dpssl.review.app import make_app
from dpssl.review.session import ReviewSession

LOCAL = "127.0.0.1"
LOOPBACK = frozenset({LOCAL, "localhost", "::1"})
WARNING = (
    "note: --host {host} lets others on the network reach this page. Whoever has the address with its token sees the "
    "images and may change labels, and the connection is not encrypted."
)


class ReviewServer:
    """Listens from the start, so that `address` is the one that answers; `run` until it is stopped, then `close`."""

    def __init__(self, contents: RunContents, who: str, host: str = LOCAL, port: int = 0) -> None:
        import uvicorn

        self._listening = _bind(host, port)
        try:
            self._session = ReviewSession(contents, who)
        except DPSSLError:
            self._listening.close()
            raise
        number, token = self._listening.getsockname()[1], secrets.token_urlsafe(32)
        self.address = f"http://{_shown_host(host)}:{number}/?token={token}"
        settings = uvicorn.Config(
            make_app(self._session, token, allowed_hosts(host), cookie=f"dpssl-review-{number}"),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nobody stands in between whose word would count
            http="h11",  # whose limit below bounds the headers
            ws="none",
            lifespan="off",
            limit_concurrency=200,
            h11_max_incomplete_event_size=16 * 1024,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(settings)

    def run(self) -> None:
        self._server.run(sockets=[self._listening])

    def stop(self) -> None:
        self._server.should_exit = True

    def close(self) -> None:
        self._session.close()
        self._listening.close()


def serve(contents: RunContents, who: str, host: str, port: int) -> None:
    """Say where the page is, and keep it there until Ctrl-C."""
    server = ReviewServer(contents, who, host, port)
    try:
        if not is_loopback(host):
            print(WARNING.format(host=host), file=sys.stderr)
        print(f"Review: {server.address}", flush=True)
        print("Ctrl-C ends it; every decision is saved at once.", file=sys.stderr, flush=True)
        server.run()
    finally:
        server.close()


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def allowed_hosts(host: str) -> frozenset[str]:
    """Names by which the page may be asked for; `*` lets in every numeric address, see dpssl.review.guard."""
    if is_loopback(host):
        return LOOPBACK | {host}
    return LOOPBACK | {host.lower(), socket.gethostname().lower(), "*"}


def _shown_host(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host}: no address of this machine ({error})") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
        return listening
    except OSError as error:
        listening.close()
        raise InputError(
            f"--host {host} --port {port}: cannot be listened on ({error.strerror}); choose another --port, or 0"
        ) from error

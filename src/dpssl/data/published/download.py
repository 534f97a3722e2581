"""One file from the web to the disk: resumable, checked, and in its place whole or not at all.

Comes in: an address and the MD5 sum the file must have. Goes out: the file. What has arrived waits in a hidden `.part`
beside it, from which a later call continues. Only http and https are spoken, whatever a server redirects to.
"""

import hashlib
import os
import re
import shutil
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from dpssl import __version__
from dpssl.data.published.files import writing
from dpssl.errors import InputError

BLOCK = 1 << 18
TIMEOUT = 60.0  # seconds without a byte
ATTEMPTS = 4  # without a byte gained
PAUSE = 2.0  # seconds before another attempt
LOST = (URLError, HTTPException, ConnectionError, TimeoutError, ssl.SSLError)  # a connection that may come back


def download(url: str, target: Path, md5: str) -> None:
    """Get `url` into `target`, which must then have this MD5 sum; continue from a part that is there."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"{url}: not an address that starts with http:// or https://")
    part = part_of(target)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        resumed = part.exists()
        found = _receive(url, part)
        if found != md5 and resumed:  # the part was of another file, or damaged: once more from the start
            part.unlink(missing_ok=True)
            found = _receive(url, part)
        if found != md5:
            part.unlink(missing_ok=True)
            raise InputError(
                f"{url}: what arrived has the MD5 sum {found}, not {md5} as published, and was removed; try again, or "
                "name another server with --mirror"
            )
        os.replace(part, target)


def part_of(target: Path) -> Path:
    """Where what has arrived of `target` waits."""
    return target.with_name(f".{target.name}.part")


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _receive(url: str, part: Path) -> str:
    """All of `url` into `part`, with new attempts as long as they gain something; returns the MD5 sum."""
    failures = 0
    while True:
        before = _size(part)
        try:
            if _receive_once(url, part):
                return md5_of(part)
            problem = "the connection was cut"
        except HTTPError as error:
            if error.code < 500:
                raise InputError(
                    f"{url}: the server answers {error.code} {error.reason}; name another server with --mirror, or get "
                    "the file by hand and put it into the data folder"
                ) from error
            problem = f"the server answers {error.code} {error.reason}"
        except LOST as error:
            problem = f"{getattr(error, 'reason', None) or error or type(error).__name__}"
        failures = failures + 1 if _size(part) <= before else 0
        if failures == ATTEMPTS:
            raise InputError(f"{url}: {problem}; {_size(part):,} bytes are kept, and the same command continues there")
        time.sleep(PAUSE)


def _receive_once(url: str, part: Path) -> bool:
    """One request. Whether `part` is complete now, as far as the server tells."""
    done = _size(part)
    headers = {"User-Agent": f"dpssl/{__version__}", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        response = _opener().open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == 416 and done:  # nothing follows what is there: the checksum tells whether that is the file
            return True
        raise
    with response:
        if response.status != 206 or _first_byte(response) != done:  # the server sends all of it
            part.unlink(missing_ok=True)
            done = 0
            if response.status == 206:
                return False
        total = _total(response, done)
        _require_space(part, (total or 0) - done)
        with part.open("ab") as file, _bar(part, total, done) as advance:
            while block := response.read(BLOCK):
                file.write(block)
                advance(len(block))
            file.flush()
            os.fsync(file.fileno())
    return total is None or _size(part) >= total


def _opener() -> urllib.request.OpenerDirector:
    """Like urllib's own, without files, FTP and data: addresses."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _first_byte(response: HTTPResponse) -> int | None:
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _total(response: HTTPResponse, done: int) -> int | None:
    length = response.headers.get("Content-Length", "")
    return done + int(length) if length.isdigit() else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _require_space(part: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if n_bytes > free:
        raise InputError(f"{part.parent}: {n_bytes:,} bytes are to come, and {free:,} are free; choose another --to")


@contextmanager
def _bar(part: Path, total: int | None, done: int) -> Iterator[Any]:
    """tqdm on a terminal; yields the function that takes the bytes gained."""
    if not sys.stderr.isatty():
        yield lambda gained: None
        return
    from tqdm import tqdm

    title = part.name.removeprefix(".").removesuffix(".part")
    with tqdm(total=total, initial=done, desc=title, unit="B", unit_scale=True, dynamic_ncols=True) as bar:
        yield bar.update

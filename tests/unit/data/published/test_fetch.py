"""`dpssl data fetch` against a server on this machine: whole, cut, resumed, lying and missing files."""

import errno
import gzip
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpssl.cli import main
from dpssl.commands.data_fetch import NAMES
from dpssl.data.published import download as downloading
from dpssl.data.published import fetch as fetch_module
from dpssl.data.published import files as unpacking
from dpssl.data.published.catalog import PUBLISHED
from dpssl.data.published.download import download, part_of
from dpssl.data.published.fetch import fetch_published
from dpssl.data.readers import load_dataset
from dpssl.errors import InputError

CONTENT = np.random.default_rng(0).bytes(3_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server:
    """Files by name, how the server behaves, and what it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"file.bin": CONTENT}
        self.honours_range = True
        self.cut_after: list[int] = []  # bytes sent by each of the next answers before the connection is closed
        self.answers: list[int] = []  # status of each of the next answers
        self.redirect = ""
        self.wrong_range = False
        self.asked: list[str | None] = []  # the Range of every request
        self.url = ""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append(wanted)
            content = state.files.get(self.path.rsplit("/", 1)[-1])
            if state.answers:
                self.send_error(state.answers.pop(0))
                return
            if state.redirect:
                self.send_response(302)
                self.send_header("Location", state.redirect)
                self.end_headers()
                return
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and state.honours_range else 0
            if start >= len(content) > 0:
                self.send_error(416)
                return
            self.send_response(206 if wanted and state.honours_range else 200)
            if wanted and state.honours_range:
                shown = start + 1 if state.wrong_range else start
                self.send_header("Content-Range", f"bytes {shown}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            body = content[start:]
            with suppress(ConnectionError):  # the client need not stay for all of it
                self.wfile.write(body[: state.cut_after.pop(0)] if state.cut_after else body)

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(downloading, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}"
    yield state
    http.shutdown()
    http.server_close()


def test_a_whole_file_arrives(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.bin"
    download(f"{server.url}/file.bin", target, MD5)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert server.asked == [None]


def test_a_cut_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cut_after = [1_000_000, 500_000]
    download(f"{server.url}/file.bin", tmp_path / "file.bin", MD5)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1000000-", "bytes=1500000-"]


def test_a_later_call_continues(server: Server, tmp_path: Path) -> None:
    server.cut_after = [700_000] + [0] * downloading.ATTEMPTS
    with pytest.raises(InputError, match=r"file\.bin: .*700,000 bytes are kept, and the same command continues"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", MD5)
    assert not (tmp_path / "file.bin").exists()
    server.asked.clear()
    download(f"{server.url}/file.bin", tmp_path / "file.bin", MD5)
    assert server.asked == ["bytes=700000-"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("fault", ["honours_range", "wrong_range"])
def test_a_server_that_does_not_resume_starts_over(fault: str, server: Server, tmp_path: Path) -> None:
    setattr(server, fault, fault == "wrong_range")
    part_of(tmp_path / "file.bin").write_bytes(CONTENT[:1_000])
    download(f"{server.url}/file.bin", tmp_path / "file.bin", MD5)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"other bytes", CONTENT + b"more", CONTENT])
def test_a_part_of_another_file_is_thrown_away(part: bytes, server: Server, tmp_path: Path) -> None:
    part_of(tmp_path / "file.bin").write_bytes(part)
    download(f"{server.url}/file.bin", tmp_path / "file.bin", MD5)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"has the MD5 sum {MD5}, not {'0' * 32} as published, and was removed"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", "0" * 32)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_named(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"/other\.bin: the server answers 404 .*--mirror"):
        download(f"{server.url}/other.bin", tmp_path / "other.bin", MD5)
    assert server.asked == [None]


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.answers = [503, 500]
    download(f"{server.url}/file.bin", tmp_path / "file.bin", MD5)
    assert len(server.asked) == 3


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/file.bin", "file.bin"])
def test_only_the_web_is_read(url: str, server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="http:// or https://"):
        download(url, tmp_path / "file.bin", MD5)
    server.redirect = "ftp://127.0.0.1/file.bin"
    with pytest.raises(InputError, match="ftp"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", MD5)
    server.redirect = "file:///etc/hostname"
    with pytest.raises(InputError):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", MD5)
    assert list(tmp_path.iterdir()) == []


def test_no_server_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(InputError, match=r"refused; 0 bytes are kept"):
        download("http://127.0.0.1:1/file.bin", tmp_path / "file.bin", MD5)


def test_a_full_disk_is_said(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = downloading.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(downloading.shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(InputError, match=r"3,000,000 bytes are to come, and 10 are free; choose another --to"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", MD5)


# Whole sets


@pytest.fixture
def offer(
    server: Server, data_folder: Path, write_set: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Put a small set on the server in place of the published one, and its checksums into the catalog."""

    def put(name: str, form: str, archive: str = "") -> Any:
        tiny = write_set(form, archive)
        for path in [path for path in data_folder.rglob("*") if path.is_file()]:
            server.files[path.name] = path.read_bytes()
            path.unlink()
        published = PUBLISHED[name]
        for file in published.downloads:
            if file.file not in server.files:  # an IDX file, which is offered compressed
                server.files[file.file] = gzip.compress(server.files[file.file.removesuffix(".gz")], mtime=0)
        downloads = tuple(
            replace(file, md5=hashlib.md5(server.files[file.file]).hexdigest()) for file in published.downloads
        )
        monkeypatch.setitem(PUBLISHED, name, replace(published, downloads=downloads))
        return tiny

    return put


@pytest.mark.parametrize(
    ("name", "form", "archive"),
    [
        ("cifar10", "cifar10-binary", "cifar-10-binary.tar.gz"),
        ("cifar100-coarse", "cifar100-binary", "cifar-100-binary.tar.gz"),
        ("stl10", "stl10", "stl10_binary.tar.gz"),
        ("svhn-extra", "svhn", ""),
        ("fashion-mnist", "fashion-mnist", ""),
    ],
)
def test_a_fetched_set_is_found_and_not_fetched_twice(
    name: str, form: str, archive: str, offer: Callable[..., Any], server: Server, data_folder: Path
) -> None:
    tiny = offer(name, form, archive)
    lines: list[str] = []
    folder = fetch_published(name, data_folder, server.url, lines.append)
    assert folder.parent == data_folder
    assert np.array_equal(load_dataset(name).images[: len(tiny.train[0])], tiny.train[0])
    assert not list(data_folder.glob("*.tar.gz"))
    assert not [path for path in data_folder.rglob(".*")]
    n_requests = len(server.asked)
    fetch_published(name, data_folder, server.url, lines.append)
    assert len(server.asked) == n_requests
    assert "is there" in lines[-1]


def test_paths_in_an_archive_decide_nothing(
    offer: Callable[..., Any], server: Server, data_folder: Path, pack_files: Callable[..., None], tmp_path: Path
) -> None:
    """Members that climb out of the folder, absolute ones and strangers are left in the archive."""
    offer("cifar100", "cifar100-binary", "cifar-100-binary.tar.gz")
    good = {f"./cifar-100-binary/{file}": bytes(3074) for file in ("train.bin", "test.bin")}
    outside = tmp_path / "outside"
    hostile = {"../climbed": b"x", str(outside): b"x", "cifar-100-binary/../../climbed": b"x", "stranger": b"x"}
    pack_files(tmp_path / "hostile.tar.gz", good | hostile)
    content = (tmp_path / "hostile.tar.gz").read_bytes()
    server.files["cifar-100-binary.tar.gz"] = content
    PUBLISHED["cifar100"] = replace(
        PUBLISHED["cifar100"],
        downloads=(replace(PUBLISHED["cifar100"].downloads[0], md5=hashlib.md5(content).hexdigest()),),
    )
    fetch_published("cifar100", data_folder, server.url, lambda _: None)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {"hostile.tar.gz", "sets/cifar-100-binary/train.bin", "sets/cifar-100-binary/test.bin"}


def test_an_archive_without_a_file_is_named(
    offer: Callable[..., Any], server: Server, data_folder: Path, pack_files: Callable[..., None], tmp_path: Path
) -> None:
    offer("cifar100", "cifar100-binary", "cifar-100-binary.tar.gz")
    pack_files(tmp_path / "short.tar.gz", {"cifar-100-binary/train.bin": bytes(3074)})
    content = (tmp_path / "short.tar.gz").read_bytes()
    server.files["cifar-100-binary.tar.gz"] = content
    PUBLISHED["cifar100"] = replace(
        PUBLISHED["cifar100"],
        downloads=(replace(PUBLISHED["cifar100"].downloads[0], md5=hashlib.md5(content).hexdigest()),),
    )
    with pytest.raises(InputError, match=r"cifar-100-binary/test\.bin\): cannot be read"):
        fetch_published("cifar100", data_folder, server.url, lambda _: None)
    assert not (data_folder / "cifar-100-binary").exists()


def test_what_was_there_before_stays(offer: Callable[..., Any], server: Server, data_folder: Path) -> None:
    offer("cifar10", "cifar10-binary", "cifar-10-binary.tar.gz")
    archive, folder = data_folder / "cifar-10-binary.tar.gz", data_folder / "cifar-10-batches-bin"
    archive.write_bytes(server.files[archive.name])
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / "data_batch_1.bin").write_text("cut short")
    fetch_published("cifar10", data_folder, server.url, lambda _: None)
    assert server.asked == []
    assert archive.exists()
    assert (folder / "notes.txt").read_text() == "mine"
    assert len(load_dataset("cifar10").images) == 50


def test_a_disk_that_fills_up_while_unpacking_is_said(
    offer: Callable[..., Any], server: Server, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("cifar10", "cifar10-binary", "cifar-10-binary.tar.gz")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unpacking.os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\); free some space"):
        fetch_published("cifar10", data_folder, server.url, lambda _: None)
    assert not list(data_folder.glob("cifar-10-batches-bin/*"))


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'cifar' is no published set; choose one of cifar10, cifar100"):
        fetch_published("cifar", tmp_path)


def test_the_help_names_every_set() -> None:
    assert ", ".join(PUBLISHED) == NAMES


def test_every_address_is_on_the_web_and_has_a_checksum() -> None:
    for known in PUBLISHED.values():
        for file in known.downloads:
            assert file.url.startswith(("http://", "https://"))
            assert len(bytes.fromhex(file.md5)) == 16
        first = known.layouts[0]
        names = [file.file for file in known.downloads]
        assert names == [first.archive] or {name.removesuffix(".gz") for name in names} == set(first.files)


# The command


def test_the_command_fetches_and_says_where(
    offer: Callable[..., Any], server: Server, data_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    offer("mnist", "mnist")
    assert main(["data", "fetch", "mnist", "--mirror", server.url]) == 0
    assert capsys.readouterr().out == f"{data_folder / 'mnist'}\n"
    assert len(load_dataset("mnist").images) == 50

    assert main(["data", "fetch", "mnist", "--mirror", server.url, "--to", str(tmp_path / "else")]) == 0
    assert f"set DPSSL_DATA={tmp_path / 'else'}" in capsys.readouterr().out


def test_a_command_that_is_stopped_can_be_given_again(
    server: Server, data_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch_module, "download", stop)
    assert main(["data", "fetch", "mnist", "--mirror", server.url]) == 130
    assert "the same command continues" in capsys.readouterr().err


def test_the_command_says_what_went_wrong(
    server: Server, data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.files["train_32x32.mat"] = b"a page that says: log in first"
    assert main(["data", "fetch", "svhn", "--mirror", server.url]) == 2
    assert "train_32x32.mat: what arrived has the MD5 sum" in capsys.readouterr().err
    assert [path for path in data_folder.rglob("*") if path.is_file()] == []

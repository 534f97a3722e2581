"""`dpssl review` at the command line: what it prints, what it refuses."""

import re
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_run, tmp_path / "run")


def wait_for(command: Any, pattern: str) -> re.Match[str]:
    for _ in range(1200):
        if found := re.search(pattern, command.stdout):
            return found
        time.sleep(0.05)
    raise AssertionError(command.stderr)


def test_it_serves_the_printed_address_and_ends_on_a_signal(warm_cli: Any, run: Path) -> None:
    command = warm_cli.start("review", run)
    try:
        address = wait_for(command, r"Review: (http://127\.0\.0\.1:\d+/\?token=[\w-]{43})\n")[1]
        with urllib.request.urlopen(address) as answer:
            assert b"Review of" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address.partition("?")[0])
    finally:  # one that is left running would keep the tests after this one waiting
        command.send(signal.SIGINT)
    assert "Traceback" not in command.stderr
    assert command.returncode == 0


def test_of_another_system_it_says_what_becomes_of_decisions(warm_cli: Any, tmp_path: Path) -> None:
    fast = ("--steps", 2, "--threads", 1, "--report", "false", "--device", "cpu")
    assert warm_cli("fit", "--method", "fixmatch", *fast, "--out", tmp_path / "fit").returncode == 0
    command = warm_cli.start("review", tmp_path / "fit")
    try:
        wait_for(command, r"Review: http")
    finally:
        command.send(signal.SIGINT)
    assert "cannot be refined; what you decide stands in its exports" in command.stderr


def test_another_review_of_the_run_is_refused(warm_cli: Any, run: Path) -> None:
    from dpssl.review.corrections import LOCK
    from dpssl.run_folder import RunFolder

    held = RunFolder(run).lock(LOCK)
    done = warm_cli("review", run)
    assert (done.returncode, "is reviewing" in done.stderr) == (2, True)
    held.close()


def test_what_it_refuses(warm_cli: Any, run: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for args, told in (
            (("--port", 70000), "--port 70000: must lie between 0 and 65535"),
            (("--port", port), f"--host 127.0.0.1 --port {port}: cannot be listened on"),
            (("--host", "no.such.host.invalid"), "--host no.such.host.invalid: no address of this machine"),
        ):
            done = warm_cli("review", run, *args)
            assert done.returncode == 2
            assert told in done.stderr
            assert "Traceback" not in done.stderr
    assert "no such run folder" in warm_cli("review", tmp_path / "nothing").stderr
    (run / "soft_labels.npz").unlink()
    assert "has no labels to review yet" in warm_cli("review", run).stderr


def test_without_its_packages_it_says_what_to_install(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dpssl import cli
    from dpssl.commands import review

    monkeypatch.setattr(review, "find_spec", lambda name: None)
    assert cli.main(["review", str(run)]) == 2
    assert "pip install 'dpssl[review]'" in capsys.readouterr().err


def test_a_page_open_to_the_network_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dpssl.review import server

    class Made:
        address = "http://box:1/?token=x"

        def __init__(self, *_: Any) -> None: ...
        def run(self) -> None: ...
        def close(self) -> None: ...

    monkeypatch.setattr(server, "ReviewServer", Made)
    for host, warned in (("0.0.0.0", True), ("127.0.0.1", False)):
        server.serve(None, "Ada", host, 0)
        assert ("lets others on the network reach this page" in capsys.readouterr().err) == warned

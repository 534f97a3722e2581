"""Signals that ask to stop."""

import os
import signal
import sys

import pytest

from dpssl.cli import main
from dpssl.stop_signals import STOPS, heeded


def test_each_is_heeded_and_the_handlers_of_before_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):  # lest a terminal on which the tests run is taken for the closed one
        monkeypatch.setattr(sys, name, None)
    before, received = [signal.getsignal(number) for number in STOPS], list[int]()
    with heeded(lambda number, _: received.append(number)):
        ignored = [number for number in STOPS if signal.getsignal(number) is signal.SIG_IGN]  # the tests' own nohup
        for number in STOPS:
            os.kill(os.getpid(), number)
    assert received == [number for number in STOPS if number not in ignored]
    assert [signal.getsignal(number) for number in STOPS] == before


def test_closed_streams_are_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `dpssl run >&-`: Python has no such stream then."""
    monkeypatch.setattr(sys, "stdout", None)
    with heeded(lambda *_: None):
        pass
    assert main(["data", "check", "digits"]) == 0

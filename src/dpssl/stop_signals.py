"""The signals that ask a program to stop where it can go on later: Ctrl-C, SIGTERM and a closed terminal."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HANG_UP = getattr(signal, "SIGHUP", None)  # a closed terminal's; not on every system, and at times sent twice
STOPS = tuple(number for number in (signal.SIGTERM, signal.SIGINT, HANG_UP) if number is not None)


@contextmanager
def heeded(stop: Callable[[int, object], None]) -> Iterator[None]:
    """Call `stop` with each of them; but what is ignored already, as a closed terminal is under nohup, stays so."""
    terminal = [stream.fileno() for stream in (sys.stdout, sys.stderr) if stream is not None and stream.isatty()]

    def handle(number: int, frame: object) -> None:
        if number == HANG_UP:
            _leave(terminal)
        stop(number, frame)

    numbers = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(terminal: list[int]) -> None:
    """Streams of a closed terminal go nowhere: a line that cannot be printed would end the program before it saves."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in terminal:
        os.dup2(nowhere, stream)
    os.close(nowhere)

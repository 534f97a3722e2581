"""The signals that ask a program to stop where it can go on later: Ctrl-C, SIGTERM and a closed terminal."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HANG_UP = getattr(signal, "SIGHUP", None)  # a closed terminal's; not on every system, and at times sent twice
STOPS = tuple(number for number in (signal.SIGTERM, signal.SIGINT, HANG_UP) if number is not None)


@contextmanager
def heeded(stop: Callable[[int, object], None]) -> Iterator[None]:
    """Call `stop` with each of them; but what is ignored already, as a closed terminal is under nohup, stays so."""
    numbers = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

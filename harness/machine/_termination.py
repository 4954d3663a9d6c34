"""SIGTERM as an exception, so that a process which is asked to end leaves its contexts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TWICE_S = 1.0
"""Seconds after a signal within which the same one again is no second request: a launcher or a scheduler may send it to
a process and to its group."""


class Terminated(SystemExit):
    """SIGTERM has asked this process to end; its exit code is that of a process which the signal has ended."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Context in which SIGTERM raises `Terminated`; a second one within `TWICE_S` is taken for the same.

    Outside the main thread, and where SIGTERM is ignored or handled otherwise, nothing changes.
    """
    raised: list[float] = []

    def end(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not raised or now - raised[-1] > TWICE_S:
            raised.append(now)
            raise Terminated

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

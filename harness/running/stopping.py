"""Requests to stop: SIGTERM and Ctrl-C, which a run with checkpoints handles at the end of an epoch.

Without checkpoints both end a run at once, by an exception: it writes its result with the epochs so far.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

EXIT_CODE = 3
"""Exit code of a command that stopped on request with a checkpoint."""

TWICE_S = 1.0
"""Seconds after the first signal from which on a Ctrl-C is a second one; earlier, a launcher may have forwarded it."""

MESSAGE = "haloscope: stopping after this epoch, with a checkpoint to go on from; Ctrl-C again ends the run at once"

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Terminated(SystemExit):
    """SIGTERM has asked this process to end; its exit code is that of a process which the signal has ended."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Context in which SIGTERM raises `Terminated`, so that what a run has recorded is written before it ends.

    A second SIGTERM within `TWICE_S` is taken for the same one: a scheduler may send it to the process and its group.
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


@contextmanager
def stop_requests(message: str = "") -> Iterator[Callable[[], bool]]:
    """Context that records SIGTERM and SIGINT; yields a function that returns whether one arrived.

    The first one prints `message` on stderr, if there is one; a later Ctrl-C interrupts. Outside the main thread
    signals cannot be handled, and the function always returns False.
    """
    found: list[float] = []  # times of arrival

    def note(number: int, frame: FrameType | None) -> None:
        found.append(time.monotonic())
        if len(found) == 1 and message:
            with suppress(OSError):  # unbuffered: the signal may have arrived while a line was being written
                os.write(2, (os.isatty(2) * "\n" + message + "\n").encode())
        if number == signal.SIGINT and found[-1] - found[0] > TWICE_S:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, note) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.siginterrupt(number, False)  # system calls of libraries are restarted
    try:
        yield lambda: bool(found)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

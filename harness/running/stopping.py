"""Requests to stop: SIGTERM and Ctrl-C, which a run with checkpoints handles at the end of an epoch.

Without checkpoints both end a run at once, by an exception (`harness.machine.ended_by_sigterm`): it writes its result
with the epochs so far.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from harness.machine import TWICE_S

EXIT_CODE = 3
"""Exit code of a command that stopped on request with a checkpoint."""

MESSAGE = "haloscope: stopping after this epoch, with a checkpoint to go on from; Ctrl-C again ends the run at once"

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_requests(message: str = "") -> Iterator[Callable[[], bool]]:
    """Context that records SIGTERM and SIGINT; yields a function that returns whether one arrived.

    The first one prints `message` on stderr, if there is one; a Ctrl-C more than `TWICE_S` later interrupts. Outside
    the main thread signals cannot be handled, and the function always returns False.
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

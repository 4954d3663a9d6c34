"""Being asked to stop: SIGTERM or Ctrl-C as a question that a run answers at the end of an epoch.

Used only where there are checkpoints to stop at; without them both signals keep their usual effect.
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
"""What a command ends with that was asked to stop and left a checkpoint to go on from."""

TWICE_S = 1.0
"""A Ctrl-C this much after the first signal is a second one; sooner, a launcher may have passed on the same."""

ANSWER = "haloscope: stopping after this epoch, with a checkpoint to go on from; Ctrl-C again ends the run at once"

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def asked(answer: str = "") -> Iterator[Callable[[], bool]]:
    """Inside, SIGTERM and SIGINT are noted; yields what tells whether one came. A later Ctrl-C interrupts.

    The first one is answered with a line on stderr, where there is a text for it.

    Outside the main thread signals cannot be had, and the answer is always no.
    """
    found: list[float] = []  # when they came

    def note(number: int, frame: FrameType | None) -> None:
        found.append(time.monotonic())
        if len(found) == 1 and answer:
            with suppress(OSError):  # past every buffer: the signal may have come in the middle of another line
                os.write(2, (os.isatty(2) * "\n" + answer + "\n").encode())
        if number == signal.SIGINT and found[-1] - found[0] > TWICE_S:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, note) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.siginterrupt(number, False)  # a wait inside a library goes on
    try:
        yield lambda: bool(found)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

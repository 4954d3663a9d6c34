"""Says once that kernels are being compiled, where that takes long.

numba compiles a kernel when it is first called on a machine, and keeps the code beside the source; later processes
load it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

LONG_S = 2.0
MESSAGE = "compiling kernels, once on this machine"


class _Compiling(event.Listener):
    """Adds up how long kernels take to compile, and calls `say` once when that is long."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.said = say, False
        self.seconds, self._begun, self._depth = 0.0, 0.0, 0

    def on_start(self, event: Any) -> None:
        """A kernel begins, or one that it calls."""
        if not self._depth:
            self._begun = time.monotonic()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """It is compiled."""
        self._depth -= 1
        if not self._depth:
            self.seconds += time.monotonic() - self._begun
        if self.seconds > LONG_S and not self.said:
            self.said = True
            self.say(MESSAGE)


@contextmanager
def compiling_said(say: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile `say` gets one line when compiling has taken more than `LONG_S` in this process."""
    listener = _Compiling(say)
    event.register("numba:compile", listener)
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)

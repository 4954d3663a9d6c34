"""Deadlines of exchanges on a device. A rank waits for them inside the library, where no deadline of ours can end it.

A thread looks once a second at those that are not complete. When another rank has failed, or one takes too long, the
thread says so in one line and ends the process; NCCL's own watchdog, which names nobody, comes later.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from real.rank.health import ERROR_PREFIX, LastWords, RankLost, end_process, refuse_sigterm

LOOK_S = 1.0
"""How often the thread looks."""

LATER_S = 15.0
"""How much later than this thread NCCL's watchdog ends an exchange."""


def give_up(lost: RankLost) -> None:
    """Say why, and end the process."""
    refuse_sigterm()
    sys.stderr.write(f"{ERROR_PREFIX}{' '.join(str(lost).split())}\n")
    end_process(1)


class DeviceWaits:
    """Exchanges of one rank that its device may still wait for.

    Args:
        words: where failures of other ranks are read.
        doing: describes what the rank waits in.
        end: called once, in the thread, with the reason; it should not return to the program.
        look_s: how often the thread looks.
    """

    def __init__(
        self,
        words: LastWords,
        doing: Callable[[], str],
        end: Callable[[RankLost], None] = give_up,
        look_s: float = LOOK_S,
    ) -> None:
        self.words, self.doing, self.end, self.look_s = words, doing, end, look_s
        self._works: list[tuple[Any, float, float]] = []
        self._lock, self._some, self._closed = threading.Lock(), threading.Event(), False
        self._thread: threading.Thread | None = None

    def add(self, work: Any, patience_s: float) -> None:
        """Watch an exchange that was started, and may take `patience_s` from now."""
        with self._lock:
            self._works.append((work, time.monotonic() + patience_s, patience_s))
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True, name="device-waits")
                self._thread.start()
        self._some.set()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._some.set()

    def _watch(self) -> None:
        while True:
            self._some.wait()  # ends with the process, or with `close`
            if self._closed:
                return
            time.sleep(self.look_s)
            if why := self._trouble():
                self.end(self.words.explain(f"waits in {self.doing()}: {why}"))
                return

    def _trouble(self) -> str:
        """Why the exchanges that are not complete never will be; empty while they may."""
        with self._lock:
            self._works = [held for held in self._works if not held[0].is_completed()]
            if not self._works:
                self._some.clear()
                return ""
            late = [patience for _, deadline, patience in self._works if time.monotonic() > deadline]
        failure = self.words.failure()
        if failure is not None:
            return f"gave up because rank {failure.rank} failed"
        return f"had no answer within {late[0]:g} s" if late else ""

"""Deadlines of exchanges on a device. A rank waits for them inside the library, where no deadline of ours can end it.

A thread looks once a second at those that are not complete. When another rank has failed, or one takes too long, the
thread says so in one line and ends the process; NCCL's own watchdog, which names nobody, comes later. The host queues
waits long before the device comes to them, so each counts from an event before it and ends with one behind it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from real.rank.health import ERROR_PREFIX, LastWords, RankLost, end_process, refuse_sigterm

LOOK_S = 1.0
"""How often the thread looks."""

LATER_S = 3600.0
"""How much later than this thread NCCL's watchdog ends an exchange, of which it counts the time from the host's call.

The host may be as far ahead of its device as an epoch is long, in which every exchange may take its time.
"""


def give_up(lost: RankLost) -> None:
    """Say why, and end the process."""
    refuse_sigterm()
    sys.stderr.write(f"{ERROR_PREFIX}{' '.join(str(lost).split())}\n")
    end_process(1)


class Moment(Protocol):
    """A place in the order of a stream: an event that was recorded there."""

    def query(self) -> bool:
        """Whether the device has come past it."""
        ...


def recorded(device: torch.device) -> Moment:
    """The place that the current stream of a GPU has come to."""
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


@dataclass
class _Wait:
    """A wait that was queued on a stream.

    Attributes:
        what: the effect that is waited for.
        reached, done: before and behind the wait. The exchange itself is not kept: it would keep its buffers.
        since: when the thread first saw that the stream had reached the wait.
    """

    what: object
    reached: Moment
    done: Moment
    patience_s: float
    since: float | None = None


class DeviceWaits:
    """Exchanges of one rank that its device may still wait for.

    Args:
        words: where failures of other ranks are read.
        device: the device of the rank.
        end: called once, in the thread, with the reason; it should not return to the program.
        look_s: how often the thread looks.
        moment: marks the current place of the current stream.
    """

    def __init__(
        self,
        words: LastWords,
        device: torch.device,
        end: Callable[[RankLost], None] = give_up,
        look_s: float = LOOK_S,
        moment: Callable[[torch.device], Moment] = recorded,
    ) -> None:
        self.words, self.device, self.end, self.look_s = words, device, end, look_s
        self._moment = moment
        self._waits: list[_Wait] = []
        self._lock, self._some, self._closed = threading.Lock(), threading.Event(), False
        self._thread: threading.Thread | None = None

    def queue(self, wait: Callable[[], Any], what: object, patience_s: float) -> None:
        """Call `wait`, which has the current stream wait for `what`, and watch it.

        It may take `patience_s` from when the stream has come to it, however late that is.
        """
        reached = self._moment(self.device)
        wait()
        held = _Wait(what, reached, self._moment(self.device), patience_s)
        with self._lock:
            self._waits.append(held)
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
                self.end(self.words.explain(why))
                return

    def _trouble(self) -> str:
        """Why the exchanges that are not complete never will be; empty while they may."""
        with self._lock:
            self._waits = [held for held in self._waits if not held.done.query()]
            if not self._waits:
                self._some.clear()
                return ""
            waits = list(self._waits)
        now = time.monotonic()
        for held in waits:
            if held.since is None and held.reached.query():
                held.since = now
        failure = self.words.failure()
        if failure is not None:
            first = next((held for held in waits if held.since is not None), waits[0])
            return f"waits in {first.what}: gave up because rank {failure.rank} failed"
        for held in waits:
            if held.since is not None and now - held.since > held.patience_s:
                return f"waits in {held.what}: had no answer within {held.patience_s:g} s"
        return ""

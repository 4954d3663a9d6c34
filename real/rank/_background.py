"""Background exchanges: a second thread of a rank encodes rows, starts their all-to-all and decodes what arrives.

The thread alone starts these exchanges, in the order in which the program did, so that they match on all ranks whatever
the ranks' own threads exchange meanwhile: over gloo they have a tag of their own, over NCCL a communicator. It encodes
and decodes one after the other, and does not wait for an exchange in between. On a GPU each exchange has a stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent import futures
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any

import torch

from harness.effects import Background, EffectName
from harness.errors import ProgramError
from real.rank._channel import Channel
from real.rank._clocks import CudaClock, Done, HostClock
from real.rank._exchanges import start_exchange
from real.rank._transport import BESIDE, Endpoint, Pending
from real.rank.connection import Connection

STREAMS = 8
"""Streams of a GPU that background exchanges use in turn."""

LEAVE_S = 5.0
"""Seconds that the thread may take to end."""


class SecondThread:
    """The thread of one rank; it is started with the first exchange.

    Args:
        endpoint: the end of the rank's own exchanges, whose waits notice that another rank has failed.
        debug: check that nothing writes to the rows before they are encoded.
    """

    def __init__(self, connection: Connection, clock: HostClock | CudaClock, endpoint: Endpoint, debug: bool) -> None:
        self.device, self.clock, self.debug = connection.device, clock, debug
        self._own = endpoint
        self._beside = Endpoint(
            connection, clock, Channel(connection.beside), BESIDE, device_waits=endpoint.device_waits
        )
        self._beside.doing = lambda: self._doing
        self._doing: EffectName | None = None
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._streams: list[torch.cuda.Stream] = []
        self._begun = 0
        self._failure: BaseException | None = None  # of an exchange that was not started

    def start(self, effect: Background) -> Pending:
        """Begin an exchange; what its conversion raises, and what goes wrong on the way, is raised at its wait."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="background-exchange")
            self._thread.start()
            if self.device.type == "cuda":
                self._streams = [torch.cuda.Stream(self.device) for _ in range(STREAMS)]
        stream = self._streams[self._begun % STREAMS] if self._streams else None
        self._begun += 1
        exchange = _Exchange(self, effect, stream)
        self._tasks.put(exchange.send)
        done = exchange.done
        return Pending(
            exchange.result, lambda: self._own.wait_for(done), watch=exchange.watch, completed=exchange.completed
        )

    def exchange(self, effect: Background, encode: Callable[[], Background]) -> Pending:
        """Start the all-to-all that `encode` returns for an effect.

        If one fails to start, no later one does: on other ranks it would be taken for the one that is missing.
        """
        if self._failure is not None:
            raise self._failure
        self._doing = effect.name
        try:
            return start_exchange(self._beside, encode())
        except BaseException as error:
            error.add_note(f"in {effect}")
            self._failure = error
            raise

    def later(self, task: Callable[[], None]) -> None:
        """Do a task in the thread."""
        self._tasks.put(task)

    def close(self) -> None:
        """End the thread, after what it has begun."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(LEAVE_S)
            self._thread = None

    def _work(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        while (task := self._tasks.get()) is not None:
            task()
            del task  # an exchange, with its rows


class _Exchange:
    """One exchange on its way through the thread.

    Attributes:
        done: completes with the result, or with what went wrong.
    """

    def __init__(self, thread: SecondThread, effect: Background, stream: torch.cuda.Stream | None) -> None:
        self.thread, self.effect, self.stream = thread, effect, stream
        self.done: futures.Future[Any] = futures.Future()
        self._reads = effect.conversion.reads
        self._versions = [tensor._version for tensor in self._reads]
        self._ready: torch.cuda.Event | None = None  # the rows are complete
        self._end: torch.cuda.Event | None = None  # the result is
        self._pending: Pending | None = None
        self._times: list[int] = []
        if stream is not None:
            self._end = torch.cuda.Event(enable_timing=True)
            self._ready = torch.cuda.Event()
            self._ready.record(torch.cuda.current_stream(thread.device))

    def send(self) -> None:
        """Encode and start the all-to-all. In the thread."""
        try:
            with self._on_stream():
                if self.stream is not None:
                    assert self._ready is not None
                    self.stream.wait_event(self._ready)
                    for tensor in self._reads:
                        tensor.record_stream(self.stream)
                self._pending = self.thread.exchange(self.effect, self._encoded)
            self._pending.when_done(self._arrived)
        except BaseException as error:  # raised where the program waits
            self.done.set_exception(error)

    def _encoded(self) -> Background:
        begin = time.time()
        payload, reads = self.effect.conversion.encode(), self._reads
        self.thread.clock.converted(self.effect, begin)
        self._reads = ()
        if self.thread.debug and self._versions != [tensor._version for tensor in reads]:
            raise ProgramError(f"a tensor was written to before {self.effect} had encoded it")
        return self.effect.with_payload(payload)

    def _arrived(self) -> None:
        self.thread.later(self._receive)

    def _receive(self) -> None:
        """Decode what has arrived (over NCCL: is to arrive). In the thread."""
        pending, self._pending = self._pending, None  # which refers to this: a cycle would keep the buffers
        assert pending is not None
        try:
            with self._on_stream():
                received, begin = pending.result(), time.time()
                rows = self.effect.conversion.decode(received)
                self.thread.clock.converted(self.effect, begin)
                del received
                if self._end is not None:
                    self._end.record(self.stream)
            self.done.set_result(rows)
        except BaseException as error:
            self.done.set_exception(error)

    def result(self) -> torch.Tensor:
        """The decoded rows, ready for the rank's own stream."""
        rows: torch.Tensor = self.done.result()
        if self._end is not None:
            current = torch.cuda.current_stream(self.thread.device)
            current.wait_event(self._end)
            rows.record_stream(current)
        return rows

    def watch(self) -> None:
        """Record when the result is there, where the host learns of it."""
        if self.stream is None:
            times, clock = self._times, self.thread.clock
            self.done.add_done_callback(lambda _: times.append(clock.now()))

    def completed(self) -> Done:
        """When the result was there; on a GPU its event, which is recorded by the end of the wait."""
        return self._times[0] if self._times else self._end

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

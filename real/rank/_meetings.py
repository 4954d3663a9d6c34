"""Messages between two ranks in batches, as NCCL needs them: what both ranks have begun is sent and received as one.

NCCL has no tags, and carries out what a rank issues on a communicator in that order. Two ranks that both issued a
receive before their send would wait for each other on their devices, where nothing can end the wait. So every pair of
ranks that exchanges messages has a communicator of its own, and nothing is issued on it before both ranks have begun
it: the higher rank tells the lower one, over gloo, how many sends and receives it has begun; the lower one answers with
the next batch, in which are all messages, of both directions, that both have begun. Both issue the batch as one grouped
operation. So a communicator's batches are the same, in the same order, at both its ends, and each can complete without
the next one: there is no order of sends and receives in which a batch waits for itself.

A pair has two threads: one listens to the other rank, one agrees on batches and issues them. On a GPU a pair has a
stream, too. The same is done over gloo where it is asked for (`Connection.batched`), with a batch waited for before
the next is begun, as a stream would: in that form it is tested where there is no GPU.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor

from real.rank._channel import Channel
from real.rank._transport import POLL_S, Endpoint, Pending, Silence, first_line

MEETINGS = 1 << 20
"""First tag of the words by which two ranks agree on batches; each program of a process has the next one."""

STANDING = timedelta(days=365)
"""How long a listener may wait for a word: nothing waits for it, and it ends with its program or its process."""

LEAVE_S = 5.0
"""Seconds that the threads may take to end, together."""


class Count(NamedTuple):
    """Messages of a pair that one of its ranks has begun, or those of one batch; as that rank sees them."""

    sends: int
    receives: int

    @property
    def turned(self) -> Count:
        """As the other rank sees them."""
        return Count(self.receives, self.sends)


class Dealer:
    """What the two ranks of a pair have begun, as the lower one knows; deals it out in batches."""

    def __init__(self) -> None:
        self.mine = self.theirs = self.dealt = Count(0, 0)

    def batch(self) -> Count:
        """The messages that both have begun and that are in no batch yet; they are from now on."""
        there = self.theirs.turned
        both = Count(min(self.mine.sends, there.sends), min(self.mine.receives, there.receives))
        batch = Count(both.sends - self.dealt.sends, both.receives - self.dealt.receives)
        self.dealt = both
        return batch


@dataclass(eq=False)
class _Message:
    """A send or a receive of this rank.

    Attributes:
        buffer: uint8 [bytes], where the library can use it.
        ready: on a GPU, when the buffer may be used.
        done: completes when the batch is done; on a GPU, once it is issued, with the moment at which it is done there.
    """

    buffer: Tensor
    sent: bool
    ready: Any = None
    done: futures.Future[Any] = field(default_factory=futures.Future)

    def end(self) -> Any:
        """The moment on a GPU at which the batch is done; None where it is not issued, and elsewhere."""
        return self.done.result() if self.done.done() and self.done.exception() is None else None


class Meetings:
    """The batches of one rank with all others.

    Args:
        endpoint: the end of the exchanges of all ranks, over whose host group ranks agree.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.number = next(endpoint.connection.programs)
        self._pairs: dict[int, _Pair] = {}
        self._lock = threading.Lock()  # started receives begin in threads

    def send(self, data: Tensor, to: int) -> Pending:
        """Send bytes to one rank; the result is None."""
        return self._begin(to, _Message(self.endpoint.staged(data), True)).then(lambda _: None)

    def recv(self, num_bytes: int, source: int) -> Pending:
        """Receive bytes from one rank: uint8 [num_bytes], in host memory or on the rank's device."""
        return self._begin(source, _Message(self.endpoint.buffer(num_bytes), False))

    def _begin(self, peer: int, message: _Message) -> Pending:
        if not self.endpoint.on_host:
            message.ready = torch.cuda.Event()
            message.ready.record(torch.cuda.current_stream(self.endpoint.device))
        with self._lock:
            if peer not in self._pairs:
                self._pairs[peer] = _Pair(self.endpoint, peer, self.number)
            self._pairs[peer].events.put(message)
        return Pending(
            lambda: self._result(message), lambda: self.endpoint.wait_for(message.done), completed=message.end
        )

    def _result(self, message: _Message) -> Tensor:
        try:
            end = message.done.result()
        except RuntimeError as error:
            raise Silence(first_line(error)) from error
        if end is not None:
            current = torch.cuda.current_stream(self.endpoint.device)
            current.wait_event(end)
            message.buffer.record_stream(current)
        return message.buffer

    def leave(self) -> None:
        """End the threads, once all ranks have returned; it takes a few seconds at most."""
        for pair in self._pairs.values():
            pair.events.put(None)
        for pair in self._pairs.values():
            for thread in pair.threads:
                thread.join(LEAVE_S / len(self._pairs))


class _Pair:
    """The batches of this rank with one other.

    Attributes:
        events: messages that the program has begun, words of the other rank, the error that ended its listener, and
            None where the program has returned.
    """

    def __init__(self, endpoint: Endpoint, peer: int, number: int) -> None:
        self.endpoint, self.peer, self.number = endpoint, peer, number
        self.leads = endpoint.rank < peer
        self.events: SimpleQueue[_Message | Tensor | BaseException | None] = SimpleQueue()
        self._dealer, self._begun = Dealer(), Count(0, 0)
        self._out, self._into = deque[_Message](), deque[_Message]()
        self._channel: Channel | None = None
        self._stream = torch.cuda.Stream(endpoint.device) if not endpoint.on_host else None
        self._returned = False
        tasks: Sequence[tuple[str, Callable[[], None]]] = (("listens", self._listen), ("meets", self._work))
        self.threads = [threading.Thread(target=do, daemon=True, name=f"{what}-{peer}") for what, do in tasks]
        for thread in self.threads:
            thread.start()

    # -- words ---------------------------------------------------------------------------------------------------------

    def _tell(self, count: Count, returned: bool = False) -> None:
        """A word to the other rank, which always listens."""
        word = torch.tensor([*count, returned], dtype=torch.int64)
        self.endpoint.host.send(word, self.peer, MEETINGS + self.number).wait(self._limit)

    def _listen(self) -> None:
        """Hand on the other rank's words, until it says that it has returned."""
        try:
            while True:
                word = torch.empty(3, dtype=torch.int64)
                self.endpoint.host.recv(word, self.peer, MEETINGS + self.number).wait(STANDING)
                self.events.put(word)
                if word[2]:
                    return
        except RuntimeError as error:  # the other rank is gone; whoever waits for it is told
            self.events.put(error)

    @property
    def _limit(self) -> timedelta:
        return timedelta(seconds=self.endpoint.patience + 2 * POLL_S)

    # -- batches -------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        if self._stream is not None:
            torch.cuda.set_device(self.endpoint.device)
        failure: BaseException | None = None
        while (event := self.events.get()) is not None:
            if isinstance(event, BaseException):
                failure = failure or event
            elif isinstance(event, _Message):
                (self._out if event.sent else self._into).append(event)
            if failure is None:
                try:
                    self._meet(event)
                except BaseException as error:  # raised where the program waits
                    failure = error
            if failure is not None:
                self._fail(failure)
        try:
            if failure is None:
                self._tell(Count(0, 0), returned=True)
        except RuntimeError:
            pass  # the other rank has left already

    def _meet(self, event: _Message | Tensor | BaseException | None) -> None:
        """Take in what happened, and issue the batch that follows from it."""
        if isinstance(event, _Message):
            self._begun = Count(self._begun.sends + event.sent, self._begun.receives + (not event.sent))
            if not self.leads:
                self._tell(self._begun)
                return
            self._dealer.mine = self._begun
        if isinstance(event, Tensor):
            sends, receives, returned = event.tolist()
            if returned:
                return
            if not self.leads:
                self._issue(Count(sends, receives).turned)
                return
            self._dealer.theirs = Count(sends, receives)
        batch = self._dealer.batch()
        if any(batch):
            self._tell(batch)
            self._issue(batch)

    def _issue(self, batch: Count) -> None:
        """Carry out a batch as one grouped operation; on a GPU, behind the pair's earlier ones."""
        out = [self._out.popleft() for _ in range(batch.sends)]
        into = [self._into.popleft() for _ in range(batch.receives)]
        try:
            if self._channel is None:  # the other rank does so now, too
                self._channel = self.endpoint.connection.join_pair(self.peer, self.number)
            end = self._exchange(self._channel, out, into)
        except BaseException as error:
            for message in (*out, *into):
                message.done.set_exception(error)
            raise
        for message in (*out, *into):
            message.done.set_result(end)

    def _exchange(self, channel: Channel, out: Sequence[_Message], into: Sequence[_Message]) -> Any:
        """Begin a batch; returns the moment at which it is done on a GPU, and None once it is done elsewhere."""
        place = 1 if self.leads else 0  # of the other rank in the pair
        with self._on_stream():
            if self._stream is not None:
                for message in (*out, *into):
                    self._stream.wait_event(message.ready)
                    message.buffer.record_stream(self._stream)
            works = channel.batch([m.buffer for m in into], [m.buffer for m in out], place)
            if self._stream is None:
                for work in works:
                    work.wait(self._limit)
                return None
            what = f"messages with rank {self.peer}"
            for work in works:
                self.endpoint.device_waits.queue(work.wait, what, self.endpoint.patience)
            end = torch.cuda.Event(enable_timing=True)
            end.record(self._stream)
            return end

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _fail(self, error: BaseException) -> None:
        """Tell every message that has begun, and is in no batch, that there will be none."""
        while self._out or self._into:
            (self._out or self._into).popleft().done.set_exception(error)

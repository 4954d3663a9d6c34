"""Bytes between ranks of one torch.distributed process group.

Buffers are flat uint8 tensors: one uneven all-to-all of bytes carries rows of any type on every backend. With gloo,
buffers on a GPU are staged through pinned host memory; with NCCL they are used where they are. Messages between two
ranks are sent one by one over gloo, and over NCCL in batches (`_meetings`); their notes always over gloo. Every wait
has a deadline. What the bytes mean, and whether the ranks agree about it, is not decided here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from harness.effects import Group
from harness.errors import HaloscopeError
from real.rank._channel import Channel
from real.rank._clocks import CudaClock, Done, HostClock
from real.rank._device_waits import DeviceWaits
from real.rank.connection import Connection, members_key

POLL_S = 1.0
"""How often a blocked rank checks whether another one has failed."""


DEALT = 1 << 16
"""Tag of the messages of an all-to-all over gloo, apart from those that programs send."""

BESIDE = DEALT + 1
"""Tag of the messages of all-to-alls that a rank's second thread starts (`_background`)."""

MOST_IN_FLIGHT = 64
"""All-to-alls over gloo that can be waited for at once; further ones are queued."""


class Silence(HaloscopeError):
    """An exchange failed or took too long; the driver adds which one."""


@dataclass(eq=False)
class Pending:
    """An exchange in flight. `result()` blocks until it is done and returns its result.

    Attributes:
        advance: starts its remaining half; to be called before the rank enters another collective.
        watch: starts to record when it completes; only for exchanges behind compute, since it costs time.
        completed: when it completed, as the clock understands it; None if it has not, or where that is not known.
        when_done: calls a function once `result()` does not block the host any more; only of all-to-alls.
    """

    finish: Callable[[], Any]
    wait: Callable[[], None] = lambda: None
    advance: Callable[[], None] = lambda: None
    watch: Callable[[], None] = lambda: None
    completed: Callable[[], Done] = lambda: None
    when_done: Callable[[Callable[[], None]], None] = lambda call: call()

    def result(self) -> Any:
        """The result; call once."""
        self.wait()
        return self.finish()

    def then(self, convert: Callable[[Any], Any]) -> Pending:
        """The same exchange, with its result converted."""
        finish = self.finish
        self.finish = lambda: convert(finish())
        return self


def flat_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a tensor as uint8 [n], without a copy when it is contiguous."""
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.stride(0) != 1:  # of tensors with at most one element, whose strides mean nothing
        flat = flat.clone(memory_format=torch.contiguous_format) if flat.numel() else flat.new_empty(0)
    return flat.view(torch.uint8)


def from_bytes(buffer: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """An aligned uint8 [n] buffer as a tensor of `dtype` and `shape`, without a copy."""
    return buffer.view(dtype).view(shape)


class Batches(Protocol):
    """Messages between two ranks in batches (`_meetings`)."""

    def send(self, data: Tensor, to: int) -> Pending:
        """Send bytes to one rank."""
        ...

    def recv(self, num_bytes: int, source: int) -> Pending:
        """Receive bytes from one rank."""
        ...


class _Together:
    """Several sends and receives as one, waited for in a thread: gloo breaks connections when such a wait ends early.

    Has the interface of a collective's work. Args: the works, threads to wait in, and the limit of a wait in seconds.
    """

    def __init__(self, works: Sequence[Any], waiters: futures.ThreadPoolExecutor, patience_s: float) -> None:
        self._works, self._waiters, self._limit = works, waiters, timedelta(seconds=patience_s)
        self._future: futures.Future[None] | None = None

    def get_future(self) -> futures.Future[None]:
        """Completes with the last message."""
        if self._future is None:
            self._future = self._waiters.submit(self._all)
        return self._future

    def wait(self, limit: timedelta | None = None) -> None:
        """Raises RuntimeError when a message failed, or they take longer than `limit`."""
        try:
            self.get_future().result(limit.total_seconds() if limit is not None else None)
        except TimeoutError as error:
            raise RuntimeError("messages are still under way") from error

    def is_completed(self) -> bool:
        """Whether all have arrived, or one has failed."""
        return self._future is not None and self._future.done()

    def _all(self) -> None:
        for work in self._works:
            work.wait(self._limit)


class _Task:
    """Work of another thread of this rank. Has the interface of a collective's work."""

    def __init__(self, task: futures.Future[Any]) -> None:
        self._task = task

    def wait(self, limit: timedelta | None = None) -> None:
        """Raises RuntimeError when it takes longer than `limit`; its own error is not raised here."""
        futures.wait([self._task], limit.total_seconds() if limit is not None else None)
        if not self._task.done():
            raise RuntimeError("work is still under way")

    def is_completed(self) -> bool:
        """Whether it is done, or has failed."""
        return self._task.done()


class _Arrival:
    """The arrival of a group's ranks at their first collective. Has the interface of a collective's work."""

    def __init__(self, connection: Connection, group: Group) -> None:
        assert connection.store is not None
        self._store, self._keys = connection.store, [f"{members_key(group)}/{rank}" for rank in group]
        self._store.set(f"{members_key(group)}/{connection.rank}", "here")

    def wait(self, limit: timedelta = timedelta(seconds=POLL_S)) -> None:
        """Raises RuntimeError when it takes longer than `limit`, or the store is gone."""
        self._store.wait(self._keys, limit)

    def is_completed(self) -> bool:
        """Whether all have arrived, or the store is gone."""
        try:
            return bool(self._store.check(self._keys))
        except RuntimeError:
            return True


class Endpoint:
    """One rank's end of a process group, of all ranks or of a group of them; it numbers its ranks from 0.

    Args:
        connection: this rank, its device and group, and how long it may wait. Exchanges before the first epoch, while
            ranks still load and compile, may take as long as the start.
        clock: this rank's clock, for the moment at which a started exchange completes.
        channel, tag: the process group of its collectives, and the tag of its all-to-alls over gloo.
        host: the group of checks, counts and notes, always over gloo.
        members: the group of ranks; None for all.
        waiters: threads to wait in, over gloo; those of another end.
        device_waits: keeps the deadlines of exchanges on the device; that of another end of this rank.

    Attributes:
        rank, size: this rank's number among the ranks of the group, and how many they are.
        members: the numbers of the group's ranks in the run.
        stuck: called about every second of a wait that takes longer than one.
        doing: the effect whose exchange is started, for what is said of a wait on the device.
        batches: carries messages between two ranks; None where they are sent one by one, over gloo.
    """

    def __init__(
        self,
        connection: Connection,
        clock: HostClock | CudaClock,
        channel: Channel,
        tag: int = DEALT,
        *,
        host: Channel | None = None,
        members: Group | None = None,
        waiters: futures.ThreadPoolExecutor | None = None,
        device_waits: DeviceWaits | None = None,
    ) -> None:
        self.members = tuple(range(connection.size)) if members is None else members
        self.rank, self.size, self.device = self.members.index(connection.rank), len(self.members), connection.device
        self.connection, self.words, self.clock, self._tag = connection, connection.words, clock, tag
        self.channel, self.host = channel, host or Channel(None)
        self.patience_s = connection.timeout_s
        self.startup_s = max(connection.startup_s, connection.timeout_s)
        self.on_host = connection.backend == "gloo"
        self.stuck: Callable[[], None] = lambda: None
        self.batches: Batches | None = None
        self.doing: Callable[[], object] = lambda: "an exchange"
        self.device_waits = device_waits or DeviceWaits(self.words, self.device)
        if waiters is None and self.on_host:
            waiters = futures.ThreadPoolExecutor(MOST_IN_FLIGHT, "exchange")
        self._waiters = waiters
        self._beside: torch.cuda.Stream | None = None  # which waits for exchanges behind compute

    def within(self, group: Group) -> Endpoint:
        """This rank's end of a group that it belongs to; blocks until all members call it.

        Raises:
            Silence: they did not come in time, or another rank has failed.
        """
        if group not in self.connection.joined:
            self._wait(_Arrival(self.connection, group))
        host, channel = self._call(lambda: self.connection.join(group))
        end = Endpoint(
            self.connection,
            self.clock,
            channel,
            self._tag,
            host=host,
            members=group,
            waiters=self._waiters,
            device_waits=self.device_waits,
        )
        end.stuck, end.doing, end.patience_s = self.stuck, self.doing, self.patience_s
        return end

    def all_to_all(self, send: Tensor, sent: np.ndarray, received: np.ndarray) -> Pending:
        """Send pieces of `send` (uint8, on the rank's device) to all ranks; results in uint8 [sum(received)] there.

        `sent`, `received`: int64 [size], bytes for and from every rank.
        """
        source = self.staged(send)
        target = self.buffer(int(received.sum()))
        if self.on_host:
            return self._dealt(source, target, sent, received)
        work = self._call(lambda: self.channel.all_to_all(target, source, received.tolist(), sent.tolist()))
        return self._collective(work, lambda: target.to(self.device), keep=source)

    def _dealt(self, source: Tensor, target: Tensor, sent: np.ndarray, received: np.ndarray) -> Pending:
        """An all-to-all over gloo: every receive is posted before the first send.

        gloo sends once the receiver has announced that it is ready, over the same socket as its own data. gloo's own
        all-to-all posts the send to a peer first: the announcement that this rank is ready is then queued behind the
        data, and the two directions run one after the other instead of at once (`benchmarks.lab`).
        """
        ends, starts = np.cumsum([sent, received], axis=1), np.cumsum([sent, received], axis=1) - [sent, received]
        peers = [(self.rank + step) % self.size for step in range(1, self.size)]

        def post() -> list[Any]:
            into = [(target[starts[1, peer] : ends[1, peer]], peer) for peer in reversed(peers) if received[peer]]
            out = [(source[starts[0, peer] : ends[0, peer]], peer) for peer in peers if sent[peer]]
            works = [self.channel.recv(piece, peer, self._tag) for piece, peer in into]
            return works + [self.channel.send(piece, peer, self._tag) for piece, peer in out]

        works = self._call(post)
        own = source[starts[0, self.rank] : ends[0, self.rank]]
        target[starts[1, self.rank] : ends[1, self.rank]].copy_(own)
        assert self._waiters is not None
        together = _Together(works, self._waiters, self.patience + 2 * POLL_S)
        return self._collective(together, lambda: target.to(self.device), keep=source)

    def all_reduce(self, tensor: Tensor) -> Pending:
        """The library's own sum over ranks, in its own order, in a new tensor."""
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        total = self.staged(total)
        work = self._call(lambda: self.channel.all_reduce(total))
        return self._collective(work, lambda: total.to(self.device), keep=total)

    def broadcast(self, data: Tensor | None, num_bytes: int, root: int) -> Pending:
        """The root's bytes on every rank, in a new uint8 buffer [num_bytes]; `data` is needed on the root alone."""
        buffer = self.buffer(num_bytes)
        if data is not None:
            buffer.copy_(data)
        work = self._call(lambda: self.channel.broadcast(buffer, root))
        return self._collective(work, lambda: buffer.to(self.device), keep=buffer)

    def send(self, data: Tensor, to: int, tag: int = 0) -> Pending:
        """Send bytes to one rank over gloo; the result is None. Those of different `tag` are matched separately."""
        source = self._to_host(data)
        work = self._call(lambda: self.host.send(source, to, tag))
        return Pending(lambda: None, lambda: self._wait_pair(work, source))

    def recv(self, num_bytes: int, source: int, tag: int = 0) -> Pending:
        """Receive bytes from one rank over gloo: uint8 [num_bytes] in host memory."""
        buffer = self._host_buffer(num_bytes)
        work = self._call(lambda: self.host.recv(buffer, source, tag))
        return Pending(lambda: buffer, lambda: self._wait_pair(work, buffer))

    def gather_host(self, row: Tensor) -> list[Tensor]:
        """Every rank's host tensor, in rank order; shapes must be equal. Blocks. For checks, not for payload."""
        rows = [torch.empty_like(row) for _ in range(self.size)]
        work = self._call(lambda: self.host.gather(rows, row))
        self._wait(work)
        return rows

    def exchange_counts(self, counts: Tensor) -> Tensor:
        """Send row r of int64 [size, k] to rank r; returns the rows for this rank, int64 [size, k] on the host."""
        received = torch.empty_like(counts)
        work = self._call(lambda: self.host.all_to_all(received, counts))
        self._wait(work)
        return received

    # -- waiting -------------------------------------------------------------------------------------------------------

    @property
    def patience(self) -> float:
        """Seconds the next exchange may take."""
        return self.patience_s if self.clock.epochs else self.startup_s

    def _call(self, begin: Callable[[], Any]) -> Any:
        """Start an operation; a broken connection may raise here already."""
        try:
            return begin()
        except RuntimeError as error:
            raise Silence(first_line(error)) from error

    def _collective(self, work: Any, finish: Callable[[], Any], keep: Tensor) -> Pending:
        """`keep`: a buffer that the backend still reads."""
        times: list[Done] = []
        what = self.doing()

        def wait(keep: Tensor = keep) -> None:
            if self.on_host:
                self._wait(work)
            else:  # raises if NCCL has given up the communicator
                self._call(lambda: self.device_waits.queue(work.wait, what, self.patience))

        def watch() -> None:
            if self.on_host:
                work.get_future().add_done_callback(lambda _: times.append(self.clock.now()))
            else:
                times.append(self._end_on_device(work))

        def when_done(call: Callable[[], None]) -> None:
            if self.on_host:
                work.get_future().add_done_callback(lambda _: call())
            else:  # the wait is the stream's
                call()

        return Pending(finish, wait, watch=watch, completed=lambda: times[0] if times else None, when_done=when_done)

    def _end_on_device(self, work: Any) -> torch.cuda.Event:
        """The event with which an exchange ends; no stream that computes waits for it."""
        if self._beside is None:
            self._beside = torch.cuda.Stream(self.device)
        end = torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self._beside):
            self._call(work.wait)
            end.record(self._beside)
        return end

    def wait_for(self, task: futures.Future[Any]) -> None:
        """Block until something that another thread does is done, well or not. Raises Silence as any wait does."""
        self._wait(_Task(task))

    def _wait(self, work: Any) -> None:
        """Block until `work` is done on the host, its deadline passes, or another rank is known to have failed."""
        patience = self.patience
        deadline = time.monotonic() + patience
        while True:
            remaining = deadline - time.monotonic()
            try:
                work.wait(timedelta(seconds=max(0.001, min(POLL_S, remaining))))
                return
            except RuntimeError as error:
                if work.is_completed():
                    self._call(work.wait)  # completed or failed while the slice ran out: raises if it failed
                    return
                failure = self.words.failure()
                if failure is not None:
                    raise Silence(f"gave up because rank {failure.rank} failed") from error
                self.stuck()
                if remaining <= POLL_S:
                    raise Silence(f"had no answer within {patience:g} s") from error

    def _wait_pair(self, work: Any, keep: Tensor) -> None:
        """Block on a send or receive, in one wait: gloo breaks all connections when such a wait ends early."""
        begun, patience = time.monotonic(), self.patience
        try:
            work.wait(timedelta(seconds=patience))
        except RuntimeError as error:
            late = time.monotonic() - begun >= patience
            raise Silence(f"had no answer within {patience:g} s" if late else first_line(error)) from error
        del keep

    # -- staging -------------------------------------------------------------------------------------------------------

    def _host_buffer(self, num_bytes: int) -> Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    def buffer(self, num_bytes: int) -> Tensor:
        """Uint8 [num_bytes] where the backend can write."""
        if self.on_host:
            return self._host_buffer(num_bytes)
        return torch.empty(num_bytes, dtype=torch.uint8, device=self.device)

    def _to_host(self, tensor: Tensor) -> Tensor:
        """The tensor in host memory, complete; itself where it is there."""
        if tensor.device.type == "cpu":
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        torch.cuda.current_stream(self.device).synchronize()
        return host

    def staged(self, tensor: Tensor) -> Tensor:
        """The tensor where the backend of collectives can read it, complete."""
        return self._to_host(tensor) if self.on_host else tensor


def first_line(error: BaseException) -> str:
    """A library's error without its address in the source and its advice."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    text = text.split("] ", 1)[1] if text.startswith("[/") and "] " in text else text
    return text.split(". This is typically", 1)[0].strip()

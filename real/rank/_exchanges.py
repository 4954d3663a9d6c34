"""Turns communication effects into byte exchanges of an endpoint, and the bytes back into the effects' results.

An all-to-all of any number of parts is one uneven all-to-all of bytes: a single part travels in the tensor's own
memory; several parts are laid out peer by peer, part by part, and cut apart by the receiver. The bytes per peer are
compared with what the effect declares. Nothing here checks that the ranks agree.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harness.effects import COUNT_BYTES, AllReduce, AllToAll, Broadcast, Effect, Received, Recv, Send, chunk_sizes
from harness.errors import ProgramError
from harness.rendezvous import add_in_rank_order
from real.rank._clocks import Done
from real.rank._transport import Endpoint, Pending, flat_bytes, from_bytes


class _RankOrderSum:
    """A deterministic all-reduce in flight: its chunks are sent first, then their sums.

    `advance()` must be called before the rank enters another collective, on all ranks alike; `finish()` calls it if
    that has not happened. So the two halves are adjacent in every rank's order of collectives, whenever a rank waits.
    """

    def __init__(self, endpoint: Endpoint, effect: AllReduce) -> None:
        self.endpoint, self.dtype, self.shape = endpoint, effect.tensor.dtype, tuple(effect.tensor.shape)
        width = effect.tensor.element_size()
        chunks = chunk_sizes(effect.tensor.numel(), endpoint.size)
        self.chunk = int(chunks[endpoint.rank])
        self.own = np.full(endpoint.size, self.chunk * width, np.int64)  # bytes of this rank's chunk, once per rank
        self.all = chunks * width  # bytes of every rank's chunk
        _check_booked(effect, endpoint, self.all + self.own)
        self.first: Pending | None = endpoint.all_to_all(flat_bytes(effect.tensor), self.all, self.own)
        self.second: Pending | None = None
        self.watched = False

    def advance(self) -> None:
        """Add the chunks once they have arrived, and start to send their sum."""
        if self.first is None:
            return
        rows = from_bytes(self.first.result(), self.dtype, (self.endpoint.size, self.chunk))
        self.first = None  # with its buffers
        total = flat_bytes(add_in_rank_order(list(rows)))
        self.second = self.endpoint.all_to_all(total.repeat(self.endpoint.size), self.own, self.all)
        if self.watched:
            self.second.watch()

    def watch(self) -> None:
        """Record when the halves complete."""
        self.watched = True
        if self.first is not None:
            self.first.watch()

    def finish(self) -> Tensor:
        """The sum, shaped as the effect's tensor; call once."""
        self.advance()
        assert self.second is not None
        second, self.second = self.second, None
        return from_bytes(second.result(), self.dtype, self.shape)

    def completed(self) -> Done:
        """When the half in flight completed."""
        half = self.second or self.first
        return None if half is None else half.completed()


def start_exchange(endpoint: Endpoint, effect: Effect) -> Pending:
    """Start the exchange of one effect; its `result()` is the effect's result.

    Raises:
        ProgramError: the effect is not an exchange, or declares other bytes than it sends.
        Silence: the process group is broken.
    """
    if isinstance(effect, AllToAll):
        return _all_to_all(endpoint, effect)
    if isinstance(effect, AllReduce):
        return _all_reduce(endpoint, effect)
    if isinstance(effect, Broadcast):
        return _broadcast(endpoint, effect)
    if isinstance(effect, Send | Recv):
        return _pair(endpoint, effect)
    raise ProgramError(f"rank {endpoint.rank}: {effect} cannot be started or exchanged")


def _all_to_all(endpoint: Endpoint, effect: AllToAll) -> Pending:
    parts = effect.parts
    widths = [part.row_bytes for part in parts]
    counts = _receive_counts(endpoint, effect)
    sent = [part.send * width for part, width in zip(parts, widths, strict=True)]
    received = [count * width for count, width in zip(counts, widths, strict=True)]
    unknown = sum(part.recv is None for part in parts)
    total_sent, total_received = (
        sum(sent, np.zeros(endpoint.size, np.int64)),
        sum(received, np.zeros(endpoint.size, np.int64)),
    )
    _check_booked(effect, endpoint, total_sent + COUNT_BYTES * unknown)
    if len(parts) == 1:
        buffer = flat_bytes(parts[0].tensor)
    else:
        pieces = [flat_bytes(p.tensor).split(s.tolist()) for p, s in zip(parts, sent, strict=True)]
        buffer = torch.cat([piece[peer] for peer in range(endpoint.size) for piece in pieces])
    pending = endpoint.all_to_all(buffer, total_sent, total_received)
    return pending.then(lambda data: _unpack(effect, counts, received, data))


def _unpack(effect: AllToAll, counts: list[np.ndarray], received: list[np.ndarray], buffer: Tensor) -> Received:
    """Cut a received buffer into the tensors of its parts."""
    parts = effect.parts
    if len(parts) == 1:
        pieces = [buffer]
    else:
        sizes = np.stack(received, axis=1).reshape(-1)  # peer by peer, part by part
        cut = buffer.split(sizes.tolist())
        pieces = [torch.cat(cut[k :: len(parts)]) for k in range(len(parts))]
    tensors = tuple(
        from_bytes(piece, part.tensor.dtype, (int(count.sum()), *part.tensor.shape[1:]))
        for piece, part, count in zip(pieces, parts, counts, strict=True)
    )
    return Received(tensors, tuple(counts))


def _receive_counts(endpoint: Endpoint, effect: AllToAll) -> list[np.ndarray]:
    """Rows from every rank, per part; counts that only the sender has are sent first, 8 bytes per pair and part."""
    unknown = [k for k, part in enumerate(effect.parts) if part.recv is None]
    counts = [np.asarray(part.recv if part.recv is not None else part.send, np.int64) for part in effect.parts]
    if unknown:
        mine = np.stack([effect.parts[k].send for k in unknown], axis=1).astype(np.int64)
        theirs = endpoint.exchange_counts(torch.from_numpy(mine)).numpy()
        for column, k in enumerate(unknown):
            counts[k] = np.ascontiguousarray(theirs[:, column])
    return counts


def _all_reduce(endpoint: Endpoint, effect: AllReduce) -> Pending:
    if effect.tensor.numel() == 0:
        return Pending(effect.tensor.detach().clone)
    if not effect.deterministic:
        return endpoint.all_reduce(effect.tensor)
    total = _RankOrderSum(endpoint, effect)
    return Pending(total.finish, advance=total.advance, watch=total.watch, completed=total.completed)


def _broadcast(endpoint: Endpoint, effect: Broadcast) -> Pending:
    tensor = effect.tensor
    if tensor.numel() == 0:
        return Pending(tensor.detach().clone)
    root = endpoint.members.index(effect.root)
    data = flat_bytes(tensor) if root == endpoint.rank else None
    pending = endpoint.broadcast(data, tensor.numel() * tensor.element_size(), root)
    return pending.then(lambda data: from_bytes(data, tensor.dtype, tuple(tensor.shape)))


def _pair(endpoint: Endpoint, effect: Send | Recv) -> Pending:
    way = endpoint if endpoint.batches is None else endpoint.batches
    if isinstance(effect, Send):
        return way.send(flat_bytes(effect.tensor), effect.to) if effect.tensor.numel() else Pending(lambda: None)
    like = effect.like
    if like.numel() == 0:
        return Pending(lambda: torch.empty_like(like))
    pending = way.recv(like.numel() * like.element_size(), effect.source)
    return pending.then(lambda data: from_bytes(data.to(endpoint.device), like.dtype, tuple(like.shape)))


def _check_booked(effect: Effect, endpoint: Endpoint, sent: np.ndarray) -> None:
    """Raise ProgramError unless the bytes per peer are those that the effect declares."""
    members = endpoint.members
    rank = members[endpoint.rank]
    booked = effect.sent(rank, endpoint.connection.size)[list(members)]
    differs = booked != sent
    differs[endpoint.rank] = False
    if differs.any():
        peer = int(np.flatnonzero(differs)[0])
        raise ProgramError(
            f"rank {rank} sends {int(sent[peer])} bytes to rank {members[peer]} "
            f"but books {int(booked[peer])} in {effect}"
        )

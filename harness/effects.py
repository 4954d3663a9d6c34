"""The closed set of operations that a rank program requests from its driver: the interface of methods and drivers.

Every effect is a frozen value that has its exact wire bytes per destination. A rank program awaits effects; a driver
(`harness.loopback`, `sims.engine`, `real.rank`) carries them out. Compute is not an effect: tensor operators run
directly.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from harness.errors import ProgramError

Direction = Literal["forward", "backward", "reduce", "other"]

Component = Literal["compute", "codec", "sample", "swap", "halo", "reduce", "wait"]
"""A component of a rank's time; an epoch is the sum of its components."""

Counts = np.ndarray  # int64 [size]: one number per rank

Group = tuple[int, ...]
"""Some of the ranks, in ascending order."""

COUNT_BYTES = 8  # a row count on the wire, where only the sender knows how many rows it sends


class Tag(NamedTuple):
    """The name of an exchange and where its bytes are counted; all ranks must agree on all fields."""

    label: str
    direction: Direction
    layer: int  # -1 where the exchange belongs to no layer
    epoch: int


class Site(NamedTuple):
    """The line of the rank program that built an effect."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, eq=False)
class Rows:
    """A tensor whose rows are divided among all ranks, in rank order.

    Args:
        tensor: [sum(send), ...]; the first `send[0]` rows go to rank 0, and so on.
        send: int64 [size], rows for each rank.
        recv: int64 [size], rows from each rank, or None where only the sender has the counts (they are then sent
            first, 8 bytes per pair).
    """

    tensor: Tensor
    send: Counts
    recv: Counts | None

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        width = 1
        for extent in self.tensor.shape[1:]:
            width *= extent
        return width * self.tensor.element_size()


class EffectName(NamedTuple):
    """What messages say of an effect. Unlike the effect it keeps no tensor alive."""

    kind: str
    tag: Tag
    among: Group | None
    site: Site

    def __str__(self) -> str:
        where = f", layer {self.tag.layer}" if self.tag.layer >= 0 else ""
        members = f" of {in_words(self.among)}" if self.among is not None else ""
        tag = f"({self.tag.direction}{where}, epoch {self.tag.epoch})"
        return f"{self.kind} {self.tag.label!r} {tag}{members} at {self.site}"


class Received(NamedTuple):
    """What an all-to-all returns: one tensor per part, its rows in rank order, and the rows from each rank."""

    tensors: tuple[Tensor, ...]
    counts: tuple[Counts, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Effect:
    """Base of all effects. Awaiting one suspends the rank program until its driver returns the result.

    The driver sends it in a list, from which the program takes it: what is in the frames of drivers lives until the
    program suspends again, and a program that is done with received rows wants their memory.
    """

    tag: Tag
    site: Site = field(default=Site("?", 0))

    def __await__(self) -> Generator[Effect, list[Any], Any]:
        return (yield self).pop()

    def sent(self, rank: int, size: int) -> Counts:
        """Bytes that this rank sends to each destination, int64 [size]; its own entry is 0."""
        return np.zeros(size, np.int64)

    def shape_signature(self) -> tuple[object, ...]:
        """The properties that, besides the tag, must be equal on every rank."""
        return ()

    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that must not change while the effect is in flight."""
        return ()

    @property
    def kind(self) -> str:
        """The effect's name in messages and traces."""
        return type(self).__name__

    @property
    def wire(self) -> Effect:
        """What is carried out: the effect itself, or the one that is started or waited for."""
        return self

    @property
    def among(self) -> Group | None:
        """The ranks that must take part in a collective; None for all."""
        return None

    @property
    def name(self) -> EffectName:
        """Its name in messages."""
        return EffectName(self.kind, self.tag, self.among, self.site)

    def __str__(self) -> str:
        return str(self.name)


@dataclass(frozen=True, eq=False, kw_only=True)
class AllToAll(Effect):
    """Every rank sends rows to every rank. Returns `Received`."""

    parts: tuple[Rows, ...]

    @cached_property
    def outgoing(self) -> Counts:
        """Bytes of rows for every rank, its own included, int64 [size]; row counts on the wire are not included."""
        return sum(
            (part.send * part.row_bytes for part in self.parts[1:]), self.parts[0].send * self.parts[0].row_bytes
        )

    @cached_property
    def incoming(self) -> Counts:
        """Bytes of rows from every rank, int64 [size], of the parts whose receive counts are given."""
        bytes_by_part = (part.recv * part.row_bytes for part in self.parts if part.recv is not None)
        return sum(bytes_by_part, np.zeros(len(self.parts[0].send), np.int64))

    @cached_property
    def outgoing_bytes(self) -> int:
        """Sum of `outgoing`."""
        return int(self.outgoing.sum())

    @cached_property
    def incoming_bytes(self) -> int:
        """Sum of `incoming`."""
        return int(self.incoming.sum())

    @cached_property
    def unknown(self) -> int:
        """Number of parts whose row counts only the sender has."""
        return sum(part.recv is None for part in self.parts)

    def sent(self, rank: int, size: int) -> Counts:
        total = self.outgoing + COUNT_BYTES * self.unknown
        total[rank] = 0
        return total

    def shape_signature(self) -> tuple[object, ...]:
        return tuple((str(p.tensor.dtype), tuple(p.tensor.shape[1:]), p.recv is None) for p in self.parts)

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(p.tensor for p in self.parts)


class Conversion:
    """What is done to the rows of an exchange before and after it; each is done once, and neither may use the rank.

    Args:
        encode: returns the payload, one tensor for each part of the exchange.
        decode: returns the result, from what was received.
        reads: tensors that `encode` reads; nothing may write to them before it has.
    """

    __slots__ = ("_decode", "_encode", "reads")

    def __init__(
        self, encode: Callable[[], tuple[Tensor, ...]], decode: Callable[[Received], Tensor], reads: tuple[Tensor, ...]
    ) -> None:
        self._encode: Callable[[], tuple[Tensor, ...]] | None = encode
        self._decode, self.reads = decode, reads

    def encode(self) -> tuple[Tensor, ...]:
        """The payload; what it was made from is not referred to any more."""
        assert self._encode is not None
        encode, self._encode, self.reads = self._encode, None, ()
        return encode()

    def decode(self, received: Received) -> Tensor:
        """The result of the exchange."""
        return self._decode(received)


@dataclass(frozen=True, eq=False, kw_only=True)
class Background(AllToAll):
    """An all-to-all with the conversion of its rows, all of it beside the rank's own compute. Only within `Start`.

    Its parts are on the meta device and have the columns and types of the payload, which does not exist yet; what is
    waited for is the result of the conversion's `decode`. Receive counts must be known.
    """

    conversion: Conversion

    def with_payload(self, payload: tuple[Tensor, ...]) -> Background:
        """The exchange of a payload. Raises ProgramError if it has other rows, columns or types than declared."""
        found, declared = ([(p.dtype, tuple(p.shape)) for p in parts] for parts in (payload, self.tensors()))
        if found != declared:
            raise ProgramError(f"{self} was declared to send {declared}, but its payload is {found}")
        parts = tuple(Rows(tensor, part.send, part.recv) for tensor, part in zip(payload, self.parts, strict=True))
        return replace(self, parts=parts)


@lru_cache(maxsize=64)
def chunk_sizes(elements: int, size: int) -> Counts:
    """Sizes of the contiguous chunks, one per rank, of an all-reduce of `elements`: int64 [size], read-only."""
    base, extra = divmod(elements, size)
    chunks: Counts = base + (np.arange(size) < extra).astype(np.int64)
    chunks.flags.writeable = False
    return chunks


def in_words(group: Group) -> str:
    """A group in messages: "ranks 0, 2"; of a large one the first ranks, the last, and their number."""
    if len(group) <= 8:
        return f"rank{'s' if len(group) > 1 else ''} {', '.join(map(str, group))}"
    return f"{len(group)} ranks {', '.join(map(str, group[:4]))}, ..., {group[-1]}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Collective(Effect):
    """Base of the collectives of all ranks or of a group of them; None means all.

    Different groups proceed independently. As for every communication library, there must be one order of the
    collectives of all groups that each rank's own order follows; ranks may deadlock otherwise.
    """

    group: Group | None = None

    @property
    def among(self) -> Group | None:
        return self.group

    def members(self, size: int) -> np.ndarray:
        """The ranks that take part, of `size` in all, int64 [members]."""
        return np.arange(size) if self.group is None else np.asarray(self.group, np.int64)

    def place(self, rank: int) -> int:
        """The position of a rank among those that take part."""
        return rank if self.group is None else self.group.index(rank)


@dataclass(frozen=True, eq=False, kw_only=True)
class AllReduce(Collective):
    """Sum over the ranks of a group; returns a new tensor.

    `deterministic` adds in rank order: chunk k of every rank goes to the k-th of the group, which adds them in rank
    order and sends the sum to all. Its bytes equal a ring's: 2 (members - 1) x payload over all ranks.
    """

    tensor: Tensor
    deterministic: bool = True

    def sent(self, rank: int, size: int) -> Counts:
        total, width = np.zeros(size, np.int64), self.tensor.element_size()
        members, at = self.members(size), self.place(rank)
        count = len(members)
        chunks = chunk_sizes(self.tensor.numel(), count)
        if self.deterministic:
            total[members] = (chunks + chunks[at]) * width
        else:
            # A ring's rank sends every chunk but one in each of its two rounds, all to its right neighbour.
            after, next_but_one = (at + 1) % count, (at + 2) % count
            total[members[after]] = (2 * chunks.sum() - chunks[after] - chunks[next_but_one]) * width
        total[rank] = 0
        return total

    def shape_signature(self) -> tuple[object, ...]:
        return (str(self.tensor.dtype), tuple(self.tensor.shape), self.deterministic)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tensor,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Broadcast(Collective):
    """The root's tensor on every rank of a group, to which the root belongs; returns a new tensor.

    The others pass a tensor of the same shape and type.
    """

    tensor: Tensor
    root: int

    def sent(self, rank: int, size: int) -> Counts:
        total = np.zeros(size, np.int64)
        if rank == self.root:
            total[self.members(size)] = self.tensor.numel() * self.tensor.element_size()
            total[rank] = 0
        return total

    def shape_signature(self) -> tuple[object, ...]:
        return (str(self.tensor.dtype), tuple(self.tensor.shape), self.root)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tensor,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Send(Effect):
    """A tensor to one rank, which must `Recv` it with the same label, shape and type. Returns None."""

    tensor: Tensor
    to: int

    def sent(self, rank: int, size: int) -> Counts:
        total = np.zeros(size, np.int64)
        total[self.to] = self.tensor.numel() * self.tensor.element_size()
        total[rank] = 0
        return total

    def shape_signature(self) -> tuple[object, ...]:
        return (str(self.tensor.dtype), tuple(self.tensor.shape))

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tensor,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Recv(Effect):
    """A tensor from one rank. `like` gives its shape, type and device. Returns a new tensor."""

    like: Tensor
    source: int

    def shape_signature(self) -> tuple[object, ...]:
        return (str(self.like.dtype), tuple(self.like.shape))


@dataclass(frozen=True, eq=False, kw_only=True)
class HostCopy(Effect):
    """A copy between device and host memory; returns the copy. On a CPU rank it is the tensor itself."""

    tensor: Tensor
    to_host: bool

    @property
    def copied_bytes(self) -> int:
        """Bytes that cross the bus."""
        return self.tensor.numel() * self.tensor.element_size()

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tensor,)


class Handle:
    """A started effect, to be waited for exactly once."""

    __slots__ = ("driver_state", "effect", "versions", "waited")

    def __init__(self, effect: Effect) -> None:
        self.effect = effect
        self.waited = False
        self.versions = tuple(t._version for t in effect.tensors())
        self.driver_state: Any = None

    def changed(self) -> bool:
        """Whether a tensor of the effect was written to since it was started."""
        return self.versions != tuple(t._version for t in self.effect.tensors())


@dataclass(frozen=True, eq=False, kw_only=True)
class Start(Effect):
    """Start an effect without waiting. Returns its `Handle`. The effect's tensors must not change before the wait."""

    effect: Effect

    @property
    def wire(self) -> Effect:
        return self.effect


@dataclass(frozen=True, eq=False, kw_only=True)
class Wait(Effect):
    """Suspend until a started effect is done. Returns the effect's result."""

    handle: Handle

    @property
    def wire(self) -> Effect:
        return self.handle.effect


def component_of(effect: Effect) -> Component:
    """The component under which the time is counted for which a rank blocks in an effect."""
    wire = effect.wire
    if isinstance(wire, HostCopy):
        return "swap"
    return "reduce" if wire.tag.direction == "reduce" else "halo"

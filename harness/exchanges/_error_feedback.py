"""Compressed boundary rows with error feedback: ResEC-BP, the compensation of an epoch's error in the next.

EC-Graph, Sec. IV-C.

A `Fetch` returns the halo rows of a matrix whose own rows a rank holds; `CompensatedPull` is the pull-style exchange
that uses one forwards and another backwards. Independent of epochs, options and bit schedules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from harness.codecs import Bucket, Cast, Codec
from harness.effects import Counts, Direction, Rows
from harness.errors import Diverged
from harness.exchanges._memory import Memory
from harness.exchanges._push_pull import HaloPull, ship
from harness.graphs import HaloPlan, LocalGraph
from harness.rank import Rank


def label_of(direction: Direction, layer: int) -> str:
    """The label of a layer's exchange, as in `_push_pull`."""
    return f"{'h' if direction == 'forward' else 'g'}{layer}"


class Fetch(Protocol):
    """Own rows [n_own, d] -> halo rows [n_halo, d] of one layer in one direction."""

    async def __call__(self, rank: Rank, x: Tensor) -> Tensor:
        """The halo's rows, as this rank receives them."""
        ...


@dataclass(frozen=True, eq=False)
class Boundary:
    """The own rows that others read, each once, and the position among them of every row that is sent."""

    plan: HaloPlan
    rows: Tensor  # int64 [n_boundary], ascending
    position: Tensor  # int64 [sum(send_counts)]

    @classmethod
    def of(cls, plan: HaloPlan, num_own: int) -> Boundary:
        """The boundary of a plan. On the meta device n_boundary is its expectation if peers choose independently."""
        if plan.send_rows.is_meta:
            unread = float(np.prod(1 - np.minimum(plan.send_counts / max(num_own, 1), 1.0)))
            rows = plan.send_rows.new_empty(round(num_own * (1 - unread)))
            return cls(plan, rows, torch.empty_like(plan.send_rows))
        rows, position = torch.unique(plan.send_rows, return_inverse=True)
        return cls(plan, rows, position)

    def by_request(self) -> Boundary:
        """The same rows with every row once for each of its readers, in the order of sending."""
        rows = self.plan.send_rows
        return Boundary(self.plan, rows, torch.arange(rows.shape[0], device=rows.device))

    @property
    def readers(self) -> Counts:
        """1 for every rank that reads rows of this one, int64 [P]."""
        return (self.plan.send_counts > 0).astype(np.int64)

    @property
    def owners(self) -> Counts:
        """1 for every rank whose rows this one reads, int64 [P]."""
        return (self.plan.recv_counts > 0).astype(np.int64)

    def groups(self, codec: Bucket) -> Counts:
        """How many of `rows` share a range; with ranges of requests, `rows` must be those of `by_request`."""
        counts = self.plan.send_counts
        return counts[counts > 0] if codec.scope == "requested" else np.asarray([self.rows.shape[0]])

    def ranges(self, codec: Bucket, side: Tensor, sent_bits: Counts, read_bits: Counts) -> Rows:
        """The ranges of all messages, whose codes have `sent_bits` to and `read_bits` from every rank."""
        if codec.scope == "row":
            side, sent, read = side.index_select(0, self.position), self.plan.send_counts, self.plan.recv_counts
        else:
            sent, read = self.readers, self.owners
            side = side if codec.scope == "requested" else side.expand(int(sent.sum()), 2).contiguous()
        if codec.table == "range":
            return Rows(side, sent, read)
        # The values of a table follow from its range: a message has the range, filled up to the size of the table.
        table = side.new_zeros(int((sent << sent_bits).sum()))
        first = _first_of_tables(sent, sent_bits, side.device)
        table[first], table[first + 1] = side[:, 0], side[:, 1]
        return Rows(table, sent << sent_bits, read << read_bits)

    def received(self, codec: Bucket, side: Tensor, read_bits: Counts) -> Tensor:
        """The received ranges [G, 2] from what `ranges` sent."""
        if codec.table == "range":
            return side
        read = self.plan.recv_counts if codec.scope == "row" else self.owners
        first = _first_of_tables(read, read_bits, side.device)
        return torch.stack([side[first], side[first + 1]], 1)

    def received_starts(self, codec: Bucket, side: Tensor) -> Tensor:
        """First halo row of every received range."""
        return codec.starts(side, self.plan.recv_counts[self.plan.recv_counts > 0])


def _first_of_tables(counts: Counts, bits: Counts, device: torch.device) -> Tensor:
    """Where tables of 2**bits values begin, `counts` of them from or for every rank."""
    lengths = np.repeat(np.int64(1) << bits, counts)
    return torch.from_numpy(np.cumsum(lengths) - lengths).to(device)


@contextmanager
def refused(rank: Rank, layer: int, what: str) -> Iterator[None]:
    """A codec's ValueError as Diverged, naming rank, layer and epoch."""
    try:
        yield
    except ValueError as error:
        raise Diverged(f"rank {rank.index}, layer {layer}, epoch {rank.epoch}: {what}: {error}") from None


@dataclass(frozen=True, eq=False)
class Exact:
    """Rows as they are. Bytes: 4 d a row."""

    boundary: Boundary
    layer: int
    direction: Direction

    async def __call__(self, rank: Rank, x: Tensor) -> Tensor:
        plan = self.boundary.plan
        codec: Codec = Cast(None)
        return await ship(
            rank, x.index_select(0, plan.send_rows), plan.send_counts, plan.recv_counts, codec,
            label=label_of(self.direction, self.layer), direction=self.direction, layer=self.layer,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Compressed:
    """Bucket codes of rows; with `residuals`, of rows plus the error of their last codes (Eq. 11 and 12).

    A boundary row is compressed once an epoch and all its readers get the same code, so there is one residual per
    layer and vertex, not one per reader. The range spans the whole own matrix and the compensated rows; with ranges of
    requests, every request has its own range (Alg. 6, line 4), codes and residuals. Residuals are float32
    [n_boundary, d], under the layer's number, zero before the first epoch.

    Bytes from i to j with n rows: n ceil(d B / 8), and a range if n > 0 (n ranges where rows have their own).
    """

    boundary: Boundary
    layer: int
    direction: Direction
    codec: Bucket
    residuals: Memory | None = None
    label: str = ""

    async def __call__(self, rank: Rank, x: Tensor) -> Tensor:
        boundary, codec, plan = self.boundary, self.codec, self.boundary.plan
        bits = np.full(rank.size, codec.bits, np.int64)
        with rank.span("codec"):
            codes, side = self._encode(rank, x)
            parts = [Rows(codes, plan.send_counts, plan.recv_counts), boundary.ranges(codec, side, bits, bits)]
        label = self.label or label_of(self.direction, self.layer)
        received = await rank.all_to_all(parts, label=label, direction=self.direction, layer=self.layer)
        with rank.span("codec"):
            got, sides = received.tensors[0], boundary.received(codec, received.tensors[1], bits)
            return codec.decode(got, sides, boundary.received_starts(codec, sides), x.shape[1]).to(x.dtype)

    def _encode(self, rank: Rank, x: Tensor) -> tuple[Tensor, Tensor]:
        """Codes of the rows that are sent, and their ranges; updates the residuals."""
        boundary, key = self.boundary, str(self.layer)
        rows = x.index_select(0, boundary.rows)
        if self.residuals is not None and key in self.residuals:
            rows = rows + self.residuals[key]
        with refused(rank, self.layer, f"{self.direction} {self.codec.bits}-bit buckets"):
            side = self.codec.measure(rows, x, boundary.groups(self.codec))
        codes, error = self.codec.encode(rows, side, boundary.groups(self.codec), keep_error=self.residuals is not None)
        if self.residuals is not None:
            self.residuals[key] = error
        return codes.index_select(0, boundary.position), side


@dataclass(frozen=True, eq=False, kw_only=True)
class CompensatedPull(HaloPull):
    """A pull whose halo rows come from one fetch forwards and from another backwards.

    `reverse`: the graph whose rows are the readers of the own rows, if it is not the graph itself.
    """

    forwards: Fetch
    backwards: Fetch
    reverse: LocalGraph | None = None

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x [n_own, d] -> (z [n_own, d],), z = A [x; halo]."""
        return (self.aggregation.forward(self.graph, x, await self.forwards(rank, x)),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_z [n_own, d],) -> g_x = A^T [g_z; halo of g_z]."""
        (g_z,) = gradients
        return self.aggregation.adjoint(self.reverse or self.graph, g_z, await self.backwards(rank, g_z))

"""Exchanges that hold one remote part at a time: rows of a part are fetched, added to the sum, and freed.

The sequential aggregation and rematerialisation of SAR. In round r a rank sends to the r-th rank after it the rows that
that rank reads, and receives those that it reads from the r-th rank before it. `depth` further rounds are on their way
while one is added, so depth + 1 pieces of halo rows are alive, instead of the halo rows of every layer until its
backward pass. Sums are linear, so their backward pass needs no rows again; attention fetches them a second time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.effects import AllToAll, Direction, Received, Rows
from harness.exchanges._attention_pull import attention_scores, leaky, log_sum_exp, slope
from harness.exchanges._returns import Returns
from harness.graphs import Block, HaloPlan, LocalGraph
from harness.kernels import csr
from harness.nn import Aggregation, add_at, aggregate, edge_rows
from harness.rank import Rank

if TYPE_CHECKING:
    from harness.nn import GATConv

Use = Callable[[int, Tensor], Awaitable[None]]
"""Called with an owner and the rows that arrived from it."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """The halo of a rank cut by owner, and the rounds in which it is fetched.

    Attributes:
        graph: of the rank; its halo block is not read here.
        blocks: per owner, the edges from its nodes into this rank's, [n_own x rows from it].
        read: per owner, first and last + 1 of its nodes in the halo.
        sent: per reader, first and last + 1 of its rows in `plan.send_rows`.
        depth: rounds that are started before the rows of an earlier one are added.
    """

    graph: LocalGraph
    plan: HaloPlan
    blocks: tuple[Block, ...]
    read: list[tuple[int, int]]
    sent: list[tuple[int, int]]
    depth: int

    @classmethod
    def of(cls, graph: LocalGraph, plan: HaloPlan, depth: int) -> Pieces:
        """Cut the halo block of a graph, O(edges + parts x own nodes); edge maps are kept where it has them."""
        read, sent = _ranges(plan.recv_counts), _ranges(plan.send_counts)
        blocks = (_columns(graph.halo, begin, end) for begin, end in read)
        mapped = graph.halo.t_edge is not None
        return cls(
            graph, plan, tuple(block.with_edge_map() if mapped else block for block in blocks), read, sent, depth
        )

    def most_rows(self, rank: int) -> int:
        """Halo rows of rank `rank` that are alive at a time, at most: of depth + 1 rounds that follow each other."""
        size, counts = len(self.read), self.plan.recv_counts
        rounds = [int(counts[(rank - r) % size]) for r in range(1, size)]
        return max((sum(rounds[at : at + self.depth + 1]) for at in range(len(rounds))), default=0)

    def rows_for(self, reader: int, rows: Tensor) -> Tensor:
        """The rows of [n_own, d] that `reader` reads."""
        begin, end = self.sent[reader]
        return rows.index_select(0, self.plan.send_rows[begin:end])

    def add_back(self, total: Tensor, reader: int, returned: Tensor) -> None:
        """Add what `reader` returned for the rows it read to those of `total`, in place."""
        begin, end = self.sent[reader]
        total.index_add_(0, self.plan.send_rows[begin:end], returned)

    async def fetch(self, rank: Rank, rows: Tensor, use: Use, *, label: str, direction: Direction, layer: int) -> None:
        """Round by round fetch the halo's rows, whose owners have them in `rows` [n_own, d], and use them."""
        coming: deque[tuple[int, object]] = deque()
        for r in range(1, rank.size):
            reader, owner = (rank.index + r) % rank.size, (rank.index - r) % rank.size
            tag = (f"{label} round {r}", direction, layer)
            shift = self._shift(rank, self.rows_for(reader, rows), reader, owner, self.plan.recv_counts, tag)
            coming.append((owner, await rank.start(shift)))
            del shift  # it holds the rows sent
            if len(coming) > self.depth:
                await self._used(rank, coming, use)
        while coming:
            await self._used(rank, coming, use)

    async def give_back(self, rank: Rank, rows: Tensor, owner: int, total: Tensor, *, label: str, layer: int) -> None:
        """Return `rows`, gradients of the rows of `owner`, in its round; add what arrives in that round to `total`."""
        r = (rank.index - owner) % rank.size
        received: Received = await self.returning(rank, rows, r, label=label, layer=layer)
        self.add_back(total, (rank.index + r) % rank.size, received.tensors[0])

    def returning(self, rank: Rank, rows: Tensor, r: int, *, label: str, layer: int) -> AllToAll:
        """Round r of a return: `rows` go to the r-th rank before this one, those of the r-th after it arrive."""
        owner, reader = (rank.index - r) % rank.size, (rank.index + r) % rank.size
        tag: tuple[str, Direction, int] = (f"{label} round {r}", "backward", layer)
        return self._shift(rank, rows, owner, reader, self.plan.send_counts, tag)

    def _shift(
        self, rank: Rank, rows: Tensor, to: int, source: int, counts: np.ndarray, tag: tuple[str, Direction, int]
    ) -> AllToAll:
        """All ranks send to one rank and receive from one, `counts[source]` rows."""
        send, recv = np.zeros(rank.size, np.int64), np.zeros(rank.size, np.int64)
        send[to], recv[source] = rows.shape[0], counts[source]
        label, direction, layer = tag
        return rank.all_to_all([Rows(rows, send, recv)], label=label, direction=direction, layer=layer)

    async def _used(self, rank: Rank, coming: deque[tuple[int, object]], use: Use) -> None:
        owner, handle = coming.popleft()
        received: Received = await rank.wait(handle)  # type: ignore[arg-type]
        del handle  # it holds the rows sent
        await use(owner, received.tensors[0])


@dataclass(frozen=True, eq=False)
class SequentialSum:
    """Own rows -> their aggregation over own and halo rows, one remote part after the other.

    Backwards the gradient of a part's rows, A_ij^T g, is computed, returned and freed, one part after the other.
    """

    pieces: Pieces
    layer: int
    aggregation: Aggregation

    returns: ClassVar[Returns] = "sum"

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x [n_own, d] -> (z [n_own, d],), z = A [x; halo]."""
        graph = self.pieces.graph
        scaled = self._columns_scaled(x, graph.degree)
        z = aggregate(graph.own, scaled)
        if self.aggregation.kind == "gcn":
            z = z.add_(scaled)
        del scaled

        async def add(owner: int, rows: Tensor) -> None:
            begin, end = self.pieces.read[owner]
            degree = graph.halo_degree[begin:end]
            z.add_(aggregate(self.pieces.blocks[owner], self._columns_scaled(rows, degree)))

        await self.pieces.fetch(rank, x, add, label=f"h{self.layer}", direction="forward", layer=self.layer)
        return (z.mul_(self.aggregation.scale(graph.degree, x)),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_z [n_own, d],) -> g_x = A^T g_z, complete."""
        pieces, last = self.pieces, rank.size - 1
        g = gradients[0] * self.aggregation.scale(pieces.graph.degree, gradients[0])
        del gradients
        under_way = deque([await self._give_back(rank, g, r) for r in range(1, min(last, 1) + 1)])
        total = self._of_own(g)
        for r in range(2, last + 1):
            if len(under_way) > pieces.depth:
                await self._add_back(rank, under_way, total)
            under_way.append(await self._give_back(rank, g, r))
        del g
        while under_way:
            await self._add_back(rank, under_way, total)
        return total

    def _of_own(self, g: Tensor) -> Tensor:
        """The share of the rank's own edges in A^T g_z, from g of `adjoint`."""
        total = _transposed_sum(self.pieces.graph.own, g)
        if self.aggregation.kind == "gcn":
            total = total.add_(g)
        return self._sums_scaled(total, self.pieces.graph.degree)

    async def _give_back(self, rank: Rank, g: Tensor, r: int) -> tuple[int, object]:
        """Start returning the gradients of the rows that were read in round r; the rank that returns some here."""
        pieces, owner, reader = self.pieces, (rank.index - r) % rank.size, (rank.index + r) % rank.size
        begin, end = pieces.read[owner]
        theirs = self._sums_scaled(_transposed_sum(pieces.blocks[owner], g), pieces.graph.halo_degree[begin:end])
        return reader, await rank.start(pieces.returning(rank, theirs, r, label=f"g{self.layer}", layer=self.layer))

    async def _add_back(self, rank: Rank, under_way: deque[tuple[int, object]], total: Tensor) -> None:
        """Wait for the oldest of the rounds, and add what was returned to `total`."""
        reader, handle = under_way.popleft()
        received: Received = await rank.wait(handle)  # type: ignore[arg-type]
        del handle  # it holds the rows sent
        self.pieces.add_back(total, reader, received.tensors[0])

    def _columns_scaled(self, rows: Tensor, degree: Tensor) -> Tensor:
        return rows if self.aggregation.kind == "mean" else rows * self.aggregation.scale(degree, rows)

    def _sums_scaled(self, sums: Tensor, degree: Tensor) -> Tensor:
        """The same, written over sums that nobody else has."""
        return sums if self.aggregation.kind == "mean" else sums.mul_(self.aggregation.scale(degree, sums))


class _Kept(NamedTuple):
    """Values of the forward pass of attention, all of own rows. n = own rows, H = heads, D = width."""

    z: Tensor  # [n, H, D]
    source: Tensor  # [n, H]
    target: Tensor  # [n, H]
    log_total: Tensor  # [n, H] logarithm of the softmax denominators
    out: Tensor  # [n, H, D]


class SequentialAttention:
    """Rows [z | source score | target score], [n_own, H D + 2 H] -> attention output [n_own, H D], part by part.

    Source scores of the halo are fetched first, since the softmax runs over all of a node's neighbours; then z, which
    is freed after its use. Backwards both are fetched again, and their gradients returned. Bytes per halo row:
    4 (H D + H) forwards, twice as much backwards. One object serves one layer of one epoch.
    """

    returns: ClassVar[Returns] = "attention"

    def __init__(self, pieces: Pieces, layer: int, conv: GATConv) -> None:
        self.pieces, self.layer, self.conv = pieces, layer, conv
        self.heads, self.width = conv.heads, conv.width
        self._kept: _Kept | None = None

    def input(self, h: Tensor) -> Tensor:
        """What `forward` is to be given, from the layer's input rows."""
        return self.conv.pull_input(h)

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """Attention over own and halo neighbours."""
        flat = self.heads * self.width
        z, source, target = x[:, :flat].contiguous(), x[:, flat : flat + self.heads], x[:, flat + self.heads :]
        own, blocks = self.pieces.graph.own, self.pieces.blocks
        theirs = await self._source_scores(rank, source, "forward")
        scores = {owner: attention_scores(blocks[owner], theirs[owner], target) for owner in theirs}
        inside = attention_scores(own, source, target)
        there = [own, *(blocks[owner] for owner in scores)]
        log_total = log_sum_exp(there, [inside, *scores.values()], len(x))
        heads = z.view(-1, self.heads, self.width)
        out = _attended(own, inside, log_total, heads)

        async def add(owner: int, rows: Tensor) -> None:
            piece = rows.view(-1, self.heads, self.width)
            out.add_(_attended(blocks[owner], scores.pop(owner), log_total, piece))

        await self.pieces.fetch(rank, z, add, label=f"h{self.layer}", direction="forward", layer=self.layer)
        self._kept = _Kept(heads, source, target, log_total, out)
        return (out.reshape(-1, flat),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """Gradients of z, source and target scores of own rows, all complete."""
        assert self._kept is not None
        kept, flat = self._kept, self.heads * self.width
        g = gradients[0].reshape(-1, self.heads, self.width).contiguous()
        centre = (g * kept.out).sum(-1)
        theirs = await self._source_scores(rank, kept.source, "backward")
        g_target = torch.zeros_like(kept.target)
        rows = self._of_columns(self.pieces.graph.own, kept.z, kept.source, g, centre, g_target)

        async def give_back(owner: int, again: Tensor) -> None:
            piece = again.view(-1, self.heads, self.width)
            found = self._of_columns(self.pieces.blocks[owner], piece, theirs.pop(owner), g, centre, g_target)
            await self.pieces.give_back(rank, found, owner, rows, label=f"g{self.layer}", layer=self.layer)

        z = kept.z.reshape(-1, flat)
        await self.pieces.fetch(
            rank, z, give_back, label=f"h{self.layer} again", direction="backward", layer=self.layer
        )
        self._kept = None
        return torch.cat([rows, g_target], 1)

    async def _source_scores(self, rank: Rank, source: Tensor, direction: Direction) -> dict[int, Tensor]:
        """Owner -> source scores of its rows in the halo, [h, H]."""
        found: dict[int, Tensor] = {}

        async def keep(owner: int, rows: Tensor) -> None:
            found[owner] = rows

        label = f"scores {self.layer}" + " again" * (direction == "backward")
        await self.pieces.fetch(rank, source, keep, label=label, direction=direction, layer=self.layer)
        return found

    def _of_columns(
        self, block: Block, z: Tensor, source: Tensor, g: Tensor, centre: Tensor, g_target: Tensor
    ) -> Tensor:
        """Gradients of the block's columns, [z | source score]; those of the rows' target scores are added in place."""
        assert self._kept is not None and block.t_edge is not None
        at = edge_rows(block)
        raw = source.index_select(0, block.indices) + self._kept.target.index_select(0, at)
        weight = (leaky(raw) - self._kept.log_total.index_select(0, at)).exp()
        dot = torch.ops.haloscope.edge_dot(block.indptr, block.indices, g, z.contiguous())
        scores = weight * (dot - centre.index_select(0, at)) * slope(raw)
        g_target.index_add_(0, at, scores)
        turned = weight.index_select(0, block.t_edge)
        g_z = torch.ops.haloscope.gather_weighted_sum(block.t_indptr, block.t_indices, turned, g)
        g_source = add_at(torch.zeros_like(source), block.indices, scores)
        return torch.cat([g_z.flatten(1), g_source], 1)


def _attended(block: Block, scores: Tensor, log_total: Tensor, z: Tensor) -> Tensor:
    """The block's share of the attention output, [n_own, H, D]."""
    weight = (scores - log_total.index_select(0, edge_rows(block))).exp()
    out: Tensor = torch.ops.haloscope.gather_weighted_sum(block.indptr, block.indices, weight, z.contiguous())
    return out


def _transposed_sum(block: Block, g: Tensor) -> Tensor:
    """S^T g, [num_cols, d]."""
    found: Tensor = torch.ops.haloscope.gather_sum(block.t_indptr, block.t_indices, g)
    return found


def _ranges(counts: np.ndarray) -> list[tuple[int, int]]:
    ends = np.cumsum(counts)
    return [(int(end - count), int(end)) for count, end in zip(counts, ends, strict=True)]


def _columns(block: Block, begin: int, end: int) -> Block:
    """The block of columns `begin` to `end`, which are neighbours in its transpose."""
    if block.indices.is_meta:
        share = (end - begin) / block.num_cols if block.num_cols else 0.0
        return Block.meta(block.num_rows, end - begin, round(share * block.nnz))
    t_indptr = block.t_indptr[begin : end + 1].cpu().numpy()
    t_indices = block.t_indices[int(t_indptr[0]) : int(t_indptr[-1])].cpu().numpy()
    t_indptr = t_indptr - t_indptr[0]
    indptr, indices = csr.transpose(t_indptr, t_indices, block.num_rows)
    return Block(*map(torch.from_numpy, (indptr, indices, t_indptr, t_indices))).to(block.indices.device)

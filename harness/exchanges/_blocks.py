"""Whole blocks of rows broadcast to all ranks, boundary or not: the exchange of CAGNET's 1D and 1.5D algorithms.

A rank's block is all its own rows. In 1D every rank receives all blocks, one after the other, and adds its products
with them. In 1.5D it receives a share of them, and the ranks that hold the same block add up what they have. What
travels depends on the number of nodes alone, not on the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from harness.effects import Direction, Group, Rows
from harness.exchanges._error_feedback import label_of
from harness.exchanges._memory import Memory
from harness.exchanges._returns import Returns
from harness.graphs import Block, HaloPlan, LocalGraph, RankGrid
from harness.nn import Aggregation, Conv
from harness.rank import Rank


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of all ranks: their sizes, and the rows of each that this rank's halo is."""

    sizes: tuple[int, ...]
    halo: tuple[Tensor, ...]  # per rank int64 [rows read from it]: places in its block

    @classmethod
    async def of(cls, rank: Rank, plan: HaloPlan, num_own: int) -> Blocks:
        """Ask all ranks once for the size of their block, and for the places in it of the rows that this one reads."""
        own = plan.send_rows.new_empty(rank.size * num_own, 0)  # rows without values: only their number is sent
        counts = torch.full((rank.size,), num_own).numpy()
        told = [Rows(own, counts, None), Rows(plan.send_rows, plan.send_counts, plan.recv_counts)]
        received = await rank.all_to_all(told, label="blocks")
        places = received.tensors[1].split([int(count) for count in plan.recv_counts])
        return cls(tuple(int(count) for count in received.counts[0]), places)

    async def broadcast(
        self, rank: Rank, x: Tensor, root: int, direction: Direction, layer: int, group: Group | None = None
    ) -> Tensor:
        """The block of `root`, [sizes[root], d], on all ranks or on those of a group; `x` is this rank's own."""
        # where it is received only its shape and type matter, so that one value stands for all
        block = x.contiguous() if root == rank.index else x.new_empty(1, 1).expand(self.sizes[root], x.shape[1])
        label = f"{label_of(direction, layer)} block {root}"
        received: Tensor = await rank.broadcast(
            block, root=root, label=label, direction=direction, layer=layer, group=group
        )
        return received

    async def halo_rows(
        self, rank: Rank, x: Tensor, roots: Sequence[int], direction: Direction, layer: int, group: Group | None = None
    ) -> Tensor:
        """The halo's rows [n_halo, d] out of the blocks of `roots`, ascending; one block is held at a time."""
        rows = []
        for root in roots:
            if not self.sizes[root]:
                continue
            block = await self.broadcast(rank, x, root, direction, layer, group)
            if len(self.halo[root]):
                rows.append(block.index_select(0, self.halo[root]))
            del block  # before the next one comes
        return torch.cat(rows) if rows else x[:0]

    def picked(self, blocks: dict[int, Tensor], like: Tensor) -> Tensor:
        """The halo's rows [n_halo, d] out of the blocks, by rank."""
        rows = [blocks[root].index_select(0, places) for root, places in enumerate(self.halo) if len(places)]
        return torch.cat(rows) if rows else like[:0]


class Operands(Protocol):
    """The rows that a layer aggregates."""

    async def __call__(self, rank: Rank, x: Tensor) -> tuple[Tensor, Tensor]:
        """Own rows [n_own, d] -> (own rows, halo rows) as this rank is to read them."""
        ...

    async def whole(self, rank: Rank, z: Tensor) -> Tensor:
        """The sum over all neighbours from that over the rows that this rank has read."""
        return z


@dataclass(frozen=True, eq=False)
class AllBlocks(Operands):
    """Own rows as they are, and the halo's out of the blocks of all ranks. Bytes over all ranks: 4 n d (P - 1)."""

    blocks: Blocks
    layer: int
    direction: Direction

    async def __call__(self, rank: Rank, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, await self.blocks.halo_rows(rank, x, range(rank.size), self.direction, self.layer)


@dataclass(frozen=True, eq=False)
class BlockShare:
    """The blocks that one column of a grid of ranks broadcasts and multiplies.

    Of P / c blocks, column k has the floor(P / c^2) from number k floor(P / c^2) on, the last column all that remain.

    Attributes:
        blocks: of all ranks, with the halo's rows out of these blocks only.
        graph: the edges from rows of these blocks.
        roots: the ranks of this column that hold them.
    """

    grid: RankGrid
    blocks: Blocks
    graph: LocalGraph
    roots: tuple[int, ...]

    @classmethod
    def of(cls, grid: RankGrid, rank: int, blocks: Blocks, graph: LocalGraph) -> BlockShare:
        """The share of a rank's column, of the blocks and the graph of its part."""
        column, k = grid.column(rank), rank % grid.replicas
        each = len(column) // grid.replicas
        roots = column[k * each : (k + 1) * each if k + 1 < grid.replicas else None]
        places = tuple(rows if root in roots else rows[:0] for root, rows in enumerate(blocks.halo))
        ends = np.cumsum([len(rows) for rows in blocks.halo])
        columns = [np.arange(ends[root] - len(blocks.halo[root]), ends[root]) for root in roots]
        kept = torch.from_numpy(np.concatenate([*columns, np.zeros(0, np.int64)])).to(graph.halo_degree.device)
        share = replace(
            graph,
            own=graph.own if rank in roots else _without_edges(graph.own),
            halo=graph.halo.select_columns(kept),
            halo_degree=graph.halo_degree.index_select(0, kept),
        )
        return cls(grid, replace(blocks, halo=places), share, roots)


def _without_edges(block: Block) -> Block:
    none = block.indices[:0]
    return Block(torch.zeros_like(block.indptr), none, torch.zeros_like(block.t_indptr), none)


@dataclass(frozen=True, eq=False)
class SharedBlocks(Operands):
    """The blocks of this rank's column; sums are completed over the row. Bytes over all ranks, of P in c columns:
    4 n d (P / c - 1) broadcast and 8 n d (c - 1) summed."""

    share: BlockShare
    layer: int
    direction: Direction

    async def __call__(self, rank: Rank, x: Tensor) -> tuple[Tensor, Tensor]:
        share, column = self.share, self.share.grid.column(rank.index)
        halo = await share.blocks.halo_rows(rank, x, share.roots, self.direction, self.layer, column)
        return x if rank.index in share.roots else torch.zeros_like(x), halo

    async def whole(self, rank: Rank, z: Tensor) -> Tensor:
        row, label = self.share.grid.row(rank.index), f"{label_of(self.direction, self.layer)} row sums"
        total: Tensor = await rank.all_reduce(z, label=label, direction=self.direction, layer=self.layer, group=row)
        return total


@dataclass(frozen=True, eq=False)
class HistoricalBlocks(Operands):
    """Blocks as they were when their owner last broadcast them, its own included (SANCUS).

    All ranks take the same decision which blocks are sent. A rank keeps every block whole, n x d values a layer, in
    `memory` under the label of the exchange and the number of the rank.

    Attributes:
        due: whether blocks are sent in this epoch, for rules that only count; None where the owner decides by its rows.
        change: an owner sends where its rows have changed by more than this share of their norm since they were sent
            (Frobenius); its decision costs one byte to every other rank, counted as other.
    """

    blocks: Blocks
    layer: int
    memory: Memory
    due: bool | None
    change: float = 0.0

    async def __call__(self, rank: Rank, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = dict(self.memory.get(self._label, {}))
        sent = await self._sent(rank, x, kept)
        for root, size in enumerate(self.blocks.sizes):
            if size and sent[root]:
                block = await self.blocks.broadcast(rank, x, root, "forward", self.layer)
                kept[str(root)] = block if root != rank.index else x
        self.memory[self._label] = kept
        rank.observe("sent rows", float(len(x)) * bool(sent[rank.index]), float(len(x)), self.layer)
        own = kept.get(str(rank.index), x)
        return own, self.blocks.picked({int(root): block for root, block in kept.items()}, x)

    @property
    def _label(self) -> str:
        return label_of("forward", self.layer)

    async def _sent(self, rank: Rank, x: Tensor, kept: Memory) -> list[bool]:
        """Whether every rank sends, the same on all of them."""
        if self.due is not None or not kept:
            return [self.due is None or self.due or not kept] * rank.size
        if rank.shapes_only:  # as often as in a recorded run, all ranks in the same epochs
            share = rank.rate("sent rows", self.layer)
            mine = int((rank.epoch + 1) * share) > int(rank.epoch * share)
        else:
            before = kept.get(str(rank.index), x)
            mine = bool((x - before).norm() > self.change * before.norm())
        flags = torch.full((rank.size, 1), mine, dtype=torch.uint8, device=x.device)
        each = np.ones(rank.size, np.int64)
        told = await rank.all_to_all([Rows(flags, each, each)], label=f"{self._label} sends", layer=self.layer)
        return [mine] * rank.size if rank.shapes_only else [bool(flag) for flag in told.tensors[0][:, 0].tolist()]


@dataclass(frozen=True, eq=False)
class BlockSum:
    """Own rows -> their aggregation over all neighbours; backwards complete gradients of own rows are read likewise.

    Needs a symmetric graph and an aggregation that is linear in rows. Keeps nothing for the backward pass.
    """

    graph: LocalGraph
    aggregation: Aggregation
    forwards: Operands
    backwards: Operands

    returns: ClassVar[Returns] = "sum"

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x [n_own, d] -> (z [n_own, d],), z = A [x; halo]."""
        return (self.aggregation.forward(self.graph, *await self.forwards(rank, x)),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_z [n_own, d],) -> g_x = A^T [g_z; halo of g_z]."""
        return self.aggregation.adjoint(self.graph, *await self.backwards(rank, gradients[0]))


class BlockPull:
    """Own rows H [n_own, in] -> A [H; halo] W [n_own, out], aggregated first; G travels backwards, in layer 0 too.

    Backwards S = A^T [G; halo of G]; rows get S W^T, and the weights H^T S with the rank's own rows H: where the rows
    that were aggregated are older than H, that is not the derivative of what was computed, but it is what CAGNET and
    SANCUS do. One object serves one layer of one epoch.
    """

    returns: ClassVar[Returns] = "layer"

    def __init__(self, layer: Conv, graph: LocalGraph, forwards: Operands, backwards: Operands) -> None:
        self.layer, self.graph, self.forwards, self.backwards = layer, graph, forwards, backwards
        self._rows: Tensor | None = None

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x [n_own, in] -> (aggregated and transformed rows [n_own, out],)."""
        self._rows = x
        own, halo = await self.forwards(rank, x)
        with torch.no_grad():
            z = self.layer.aggregate(self.graph, own, halo)
        z = await self.forwards.whole(rank, z)
        with torch.no_grad():
            return (self.layer.transform(z),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(G [n_own, out],) -> the gradient of x [n_own, in]; adds the weights' gradients to them."""
        own, halo = await self.backwards(rank, gradients[0])
        assert self.layer.aggregation is not None and self._rows is not None
        s = self.layer.aggregation.adjoint(self.graph, own, halo)
        s = await self.backwards.whole(rank, s)
        weights = [p for p in self.layer.parameters() if p.requires_grad]
        found = torch.autograd.grad(self.layer.transform(self._rows), weights, s, allow_unused=True)
        self._rows = None
        for weight, gradient in zip(weights, found, strict=True):
            if gradient is not None:
                weight.grad = gradient if weight.grad is None else weight.grad + gradient
        with torch.no_grad():
            return self.layer.transform_adjoint(s)

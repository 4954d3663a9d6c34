"""A pull whose rows have different numbers of bits, and travel while central nodes are aggregated (AdaQP).

Central nodes have no neighbour on another rank, so their sums need no halo rows: an exchange is started, central rows
are summed, and marginal rows are summed once the halo has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from harness.codecs import MixedRows
from harness.effects import Direction, Received, Rows
from harness.errors import Diverged
from harness.exchanges._error_feedback import label_of
from harness.exchanges._memory import Memory
from harness.exchanges._push_pull import Route
from harness.exchanges._returns import Returns
from harness.graphs import Block, LocalGraph
from harness.kernels.packed import code_bytes
from harness.nn import Aggregation
from harness.rank import Rank

CODE_SHARE: dict[Direction, str] = {"forward": "code bytes", "backward": "code bytes backward"}
"""Observed once bits are assigned: bytes of codes, of those at 8 bits."""


class SomeRows(NamedTuple):
    """Some rows of a sparse block, in CSR form."""

    indptr: Tensor
    indices: Tensor

    @classmethod
    def of(cls, block: Block, rows: Tensor, share: float) -> SomeRows:
        """The given rows, int64, in their order, O(entries); without numbers that `share` of the entries."""
        if rows.is_meta:
            nnz = round(share * block.nnz)
            return cls(block.indptr.new_empty(rows.shape[0] + 1), block.indices.new_empty(nnz))
        starts = block.indptr.index_select(0, rows).long()
        counts = block.indptr.diff().index_select(0, rows).long()
        ends = counts.cumsum(0)
        at = torch.repeat_interleave(starts - ends + counts, counts) + torch.arange(
            int(counts.sum()), device=rows.device
        )
        indptr = torch.nn.functional.pad(ends, (1, 0)).to(block.indptr.dtype)
        return cls(indptr, block.indices.index_select(0, at))

    def sum(self, x: Tensor) -> Tensor:
        """Sums of the rows of x over the entries of every row."""
        found: Tensor = torch.ops.haloscope.gather_sum(self.indptr, self.indices, x)
        return found


@dataclass(frozen=True, eq=False)
class CentralSplit:
    """A rank's rows divided into central ones, whose neighbours are all its own, and marginal ones.

    Attributes:
        central, marginal: int64, own rows.
        inside: entries of central rows.
        near, far: entries of marginal rows among own and among halo nodes.
    """

    graph: LocalGraph
    central: Tensor
    marginal: Tensor
    inside: SomeRows
    near: SomeRows
    far: SomeRows

    @classmethod
    def of(cls, rank: Rank, graph: LocalGraph) -> CentralSplit:
        """The split of a graph; without numbers from the recorded shares of `observe`."""
        if rank.shapes_only:
            rows, entries = rank.rate("central rows"), rank.rate("central entries")
            whole = torch.empty(graph.num_own, dtype=torch.int64, device=rank.device)
            central, marginal = whole.tensor_split([round(rows * graph.num_own)])
        else:
            entries, reads = 0.0, graph.halo.indptr.diff() > 0
            central, marginal = (torch.nonzero(flags).squeeze(1) for flags in (~reads, reads))
        return cls(
            graph,
            central,
            marginal,
            SomeRows.of(graph.own, central, entries),
            SomeRows.of(graph.own, marginal, 1 - entries),
            SomeRows.of(graph.halo, marginal, 1.0),
        )

    def observe(self, rank: Rank) -> None:
        """Record the shares that a run without numbers needs."""
        rank.observe("central rows", len(self.central), self.graph.num_own)
        rank.observe("central entries", len(self.inside.indices), self.graph.own.nnz)


class SplitSum:
    """An aggregation, or its adjoint on a symmetric graph, in two steps, bit-equal to that in one.

    Args:
        x: own rows [n_own, d], before their factors.
    """

    def __init__(self, split: CentralSplit, aggregation: Aggregation, x: Tensor, direction: Direction) -> None:
        graph, self.split = split.graph, split
        mean, forward = aggregation.kind == "mean", direction == "forward"
        factor = aggregation.scale(graph.degree, x)
        self.rows = x if mean and forward else x * factor
        self.own_term = self.rows if aggregation.kind == "gcn" else None
        self.outer = factor if forward or not mean else None
        self.halo = None if mean and forward else aggregation.scale(graph.halo_degree, x)
        self.out = torch.empty_like(x)

    def central(self) -> None:
        """Sum the rows that need no halo."""
        self._put(self.split.central, self.split.inside.sum(self.rows))

    def marginal(self, halo: Tensor) -> Tensor:
        """Sum the other rows, with the halo rows [n_halo, d]; returns all sums [n_own, d]."""
        z = self.split.near.sum(self.rows)
        if self.split.graph.halo.nnz:
            z = z.add_(self.split.far.sum(halo if self.halo is None else halo * self.halo))
        self._put(self.split.marginal, z)
        return self.out

    def _put(self, at: Tensor, z: Tensor) -> None:
        if self.own_term is not None:
            z = z.add_(self.own_term.index_select(0, at))
        if self.outer is not None:
            z = z.mul_(self.outer.index_select(0, at))
        self.out.index_copy_(0, at, z)


@dataclass(frozen=True, eq=False)
class MixedPull:
    """Own rows -> their aggregation over own and halo rows; backwards the complete gradients of own rows are sent.

    Args:
        memory: "sent" and "read", bits of sent and of halo rows by label, uint8; "trace", where it is kept, squared
            ranges of sent rows by label, float32, to which those of this epoch are added.
        same: bits of all rows, None where they differ; their share of bytes is observed then.
    """

    route: Route
    layer: int
    split: CentralSplit
    aggregation: Aggregation
    memory: Memory
    same: int | None

    returns: ClassVar[Returns] = "sum"

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x [n_own, d] -> (z [n_own, d],), z = A [x; halo]."""
        return (await self._aggregated(rank, x, "forward"),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_z [n_own, d],) -> g_x = A^T [g_z; halo of g_z]."""
        return await self._aggregated(rank, gradients[0], "backward")

    async def _aggregated(self, rank: Rank, x: Tensor, direction: Direction) -> Tensor:
        plan, label = self.route.plan, label_of(direction, self.layer)
        share = self._share(rank, x.shape[1], direction)
        with rank.span("codec"):
            going = MixedRows.of(self.memory["sent"][label], x.shape[1], plan.send_counts, share)
            coming = MixedRows.of(self.memory["read"][label], x.shape[1], plan.recv_counts, share)
            codes, side = self._coded(rank, x.index_select(0, plan.send_rows), going, direction)
            if "trace" in self.memory:
                trace: Memory = self.memory["trace"]
                trace[label] = trace[label] + going.squared_ranges(side)
        if self.same is None:
            whole = code_bytes(x.shape[1], 8) * int(plan.send_counts.sum())
            rank.observe(CODE_SHARE[direction], int(going.nbytes.sum()), whole, self.layer)
        rows = [Rows(codes, going.nbytes, coming.nbytes), Rows(side, plan.send_counts, plan.recv_counts)]
        handle = await rank.start(rank.all_to_all(rows, label=label, direction=direction, layer=self.layer))
        total = SplitSum(self.split, self.aggregation, x, direction)
        total.central()
        received: Received = await rank.wait(handle)
        codes, side = received.tensors
        with rank.span("codec"):
            halo = coming.decode(codes, side, x.dtype)
        return total.marginal(halo)

    def _share(self, rank: Rank, width: int, direction: Direction) -> float:
        """Bytes of codes as a share of those at 8 bits; read without numbers only."""
        if self.same is not None:
            return code_bytes(width, self.same) / code_bytes(width, 8)
        return rank.rate(CODE_SHARE[direction], self.layer) if rank.shapes_only else 1.0

    def _coded(self, rank: Rank, rows: Tensor, going: MixedRows, direction: Direction) -> tuple[Tensor, Tensor]:
        """Codes and side information. Raises Diverged, naming rank, layer and epoch, for nan or inf."""
        label = label_of(direction, self.layer)
        try:
            return going.encode(rows, rank.key(f"codec/{label}", self.layer))
        except ValueError as error:
            where = f"rank {rank.index}, layer {self.layer}, epoch {rank.epoch}: {direction} {label}"
            raise Diverged(f"{where}: {error}") from None

"""One rank's part of a partitioned graph: its sparse blocks, its exchange plan, and its rows.

The types are plain frozen values made of tensors, so the same method code runs on CPU, on a GPU, and on meta
tensors that have shapes only. Nodes are assigned to ranks elsewhere.

Shapes: n_own = inner nodes of the rank, n_halo = nodes of other ranks that have an edge into it, P = ranks,
F = features, C = classes. Rows of a block are destinations, columns are sources.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from harness.kernels import csr
from harness.kernels.boundary import host_select_columns as _host_select_columns
from harness.kernels.columns import select_columns as _select_columns
from harness.kernels.edge_drop import drop_edges as _drop_edges
from harness.kernels.random import signed64

_Arrays = tuple[Tensor, Tensor, Tensor, Tensor]  # of a block, without its edge map


def position_dtype(nnz: int) -> torch.dtype:
    """int32 while every position in a block of `nnz` entries fits, int64 beyond."""
    return torch.int32 if nnz < 2**31 else torch.int64


def _moved(value: Any, device: torch.device | str) -> Any:
    """`value` on `device`; values that are not made of tensors (counts, totals, ranks) pass unchanged.

    A move to the meta device keeps shape and dtype only.
    """
    return value.to(device) if isinstance(value, (Tensor, OnDevice)) else value


class OnDevice:
    """`.to(device)` for frozen dataclasses of tensors, and of other such dataclasses."""

    def to(self, device: torch.device | str) -> Self:
        """The same value with every tensor on `device`; counts stay numpy arrays on the host."""
        return replace(self, **{f.name: _moved(getattr(self, f.name), device) for f in fields(self)})  # type: ignore[type-var,arg-type]


@dataclass(frozen=True, eq=False)
class Block(OnDevice):
    """One sparse block in CSR with its transpose kept, for aggregation forwards and gradients backwards.

    All index tensors share one dtype: int32, or int64 from 2**31 entries on.
    """

    indptr: Tensor  # [num_rows + 1]
    indices: Tensor  # [nnz] source columns, ascending in each row
    t_indptr: Tensor  # [num_cols + 1]
    t_indices: Tensor  # [nnz] destination rows, ascending in each column
    t_edge: Tensor | None = None  # [nnz] position in `indices` of every transposed entry

    @classmethod
    def from_csr(cls, indptr: np.ndarray, indices: np.ndarray, num_cols: int) -> Block:
        """A block from CSR arrays of one integer dtype (shared, not copied); the transpose is computed, O(nnz)."""
        t_indptr, t_indices = csr.transpose(indptr, indices, num_cols)
        return cls(*map(torch.from_numpy, (indptr, indices, t_indptr, t_indices)))

    @classmethod
    def meta(cls, num_rows: int, num_cols: int, nnz: int) -> Block:
        """A block of shapes only."""
        sizes = (num_rows + 1, nnz, num_cols + 1, nnz)
        return cls(*(torch.empty(size, dtype=position_dtype(nnz), device="meta") for size in sizes))

    @property
    def num_rows(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_cols(self) -> int:
        return self.t_indptr.numel() - 1

    @property
    def nnz(self) -> int:
        return self.indices.numel()

    def with_edge_map(self) -> Block:
        """The same block with `t_edge`, which per-edge values (attention) need in the backward pass."""
        if self.t_edge is not None:
            return self
        if self.indices.is_meta:
            return replace(self, t_edge=torch.empty_like(self.indices))
        t_edge = csr.edge_map(self.indices.cpu().numpy(), self.t_indptr.cpu().numpy())
        return replace(self, t_edge=torch.from_numpy(t_edge).to(self.indices.device))

    def select_columns(self, columns: Tensor) -> Block:
        """The block of the given columns only, renumbered 0..k-1 in the given order, O(nnz).

        `columns`: int64 [k], strictly ascending, on the block's device; anything else raises ValueError on the CPU and
        is not checked on other devices. All columns: the block itself. An edge map is carried over. On the
        meta device nnz shrinks in proportion to k.
        """
        if columns.numel() == self.num_cols:
            return self
        arrays = (self.indptr, self.indices, self.t_indptr, self.t_indices)
        kept = Block(*self._selected(arrays, columns))
        return kept if self.t_edge is None else kept.with_edge_map()

    def _selected(self, arrays: _Arrays, columns: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = _select_columns(*arrays, columns)
        return found

    def drop_edges(self, key: int, share: float, diagonal: bool = False) -> Block:
        """The block with every entry kept with probability `share`, drawn from `key`, O(nnz).

        Columns keep their numbers; `diagonal` keeps the entries i -> i. On the meta device nnz is its
        expectation.
        """
        kept = Block(*_drop_edges(self.indptr, self.indices, self.num_cols, signed64(key), share, diagonal))
        return kept if self.t_edge is None else kept.with_edge_map()


class HostBlock(Block):
    """A block in the host's memory, whichever device computes: a model prices what selects its columns as host work."""

    @classmethod
    def of(cls, block: Block) -> HostBlock:
        """A copy of the block; on the meta device and on a CPU the same tensors."""
        host = block if block.indices.is_meta else block.to("cpu")
        return cls(**{f.name: getattr(host, f.name) for f in fields(host)})

    def _selected(self, arrays: _Arrays, columns: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = _host_select_columns(*arrays, columns if columns.is_meta else columns.cpu())
        return found


@dataclass(frozen=True, eq=False)
class LocalGraph(OnDevice):
    """The edges into one rank's nodes, split by the owner of the source: this rank, or another.

    Degrees are those of the full graph: a self loop that `with_self_loops` adds is not counted.
    """

    own: Block  # [n_own x n_own]
    halo: Block  # [n_own x n_halo]
    degree: Tensor  # int64 [n_own] in-degree
    halo_degree: Tensor  # int64 [n_halo] in-degree

    @cached_property
    def factors(self) -> dict[object, Tensor]:
        """Factors of its rows that follow from degrees, kept by those who made them; a copy begins without any."""
        return {}

    @property
    def num_own(self) -> int:
        return self.own.num_rows

    @property
    def num_halo(self) -> int:
        return self.halo.num_cols

    def with_self_loops(self) -> LocalGraph:
        """The same graph with `i -> i` in every row of `own` that lacks it (attention layers need it)."""
        own = self.own
        if own.indices.is_meta:
            return replace(self, own=Block.meta(own.num_rows, own.num_cols, own.nnz + own.num_rows))
        indptr, indices = csr.add_self_loops(own.indptr.cpu().numpy(), own.indices.cpu().numpy())
        looped = Block.from_csr(indptr, indices, own.num_cols).to(own.indices.device)
        return replace(self, own=looped if own.t_edge is None else looped.with_edge_map())


@dataclass(frozen=True, eq=False)
class HaloPlan(OnDevice):
    """Which rows are sent to which ranks. Rank i's rows for j arrive at j in the order in which i lists them.

    On symmetric graphs the plan serves halo rows forwards and, reversed, their gradients.
    """

    send_rows: Tensor  # int64 [sum(send_counts)] own rows, grouped by destination rank, ascending in a group
    send_counts: np.ndarray  # int64 [P]
    recv_counts: np.ndarray  # int64 [P]; the halo is numbered in arrival order: by owner, then by the owner's row

    @classmethod
    def meta(cls, send_counts: np.ndarray, recv_counts: np.ndarray) -> HaloPlan:
        """A plan of counts only, which are not copied: of thousands of ranks they are rows of one table."""
        rows = torch.empty(int(send_counts.sum()), dtype=torch.int64, device="meta")
        return cls(rows, np.asarray(send_counts, np.int64), np.asarray(recv_counts, np.int64))

    @property
    def num_parts(self) -> int:
        return len(self.send_counts)


@dataclass(frozen=True)
class Totals:
    """Counts of the whole graph, the same on every rank.

    Attributes:
        skew: coefficient of variation of the degrees where a description declares it; models of GPUs read it.
    """

    num_nodes: int
    num_edges: int
    num_train: int
    num_val: int
    num_test: int
    num_features: int
    num_classes: int
    multilabel: bool
    symmetric: bool
    skew: float = 0.0


@dataclass(frozen=True, eq=False)
class Part(OnDevice):
    """The part of a partitioned graph on one rank; `replica` numbers the ranks that hold the same one from 0."""

    rank: int
    num_parts: int
    nodes: Tensor  # int64 [n_own] global ids in local order
    halo_nodes: Tensor  # int64 [n_halo] global ids in halo order
    graph: LocalGraph
    plan: HaloPlan
    x: Tensor | None  # float32 [n_own, F]
    y: Tensor | None  # int64 [n_own], or float32 [n_own, C] (multi-label)
    train: Tensor  # int64 local rows, ascending; empty without a split
    val: Tensor
    test: Tensor
    totals: Totals
    replica: int = 0

    def shapes_only(self) -> Part:
        """The same part on the meta device."""
        return self.to("meta")

    @classmethod
    def describe(
        cls,
        rank: int,
        num_parts: int,
        n_own: int,
        recv_counts: np.ndarray,
        send_counts: np.ndarray,
        nnz_own: int,
        nnz_halo: int,
        totals: Totals,
    ) -> Part:
        """A part of shapes only, from counts, for graphs that do not fit in memory.

        `recv_counts` and `send_counts`: int [num_parts] rows from and to every rank. Split sizes are the graph's,
        scaled by the share of nodes and rounded.
        """

        def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(shape, dtype=dtype, device="meta")

        def share(count: int) -> Tensor:
            return empty(round(n_own * count / totals.num_nodes) if totals.num_nodes else 0)

        n_halo = int(recv_counts.sum())
        own, halo = Block.meta(n_own, n_own, nnz_own), Block.meta(n_own, n_halo, nnz_halo)
        graph = LocalGraph(own, halo, empty(n_own), empty(n_halo))
        x = empty(n_own, totals.num_features, dtype=torch.float32) if totals.num_features else None
        y = empty(n_own, totals.num_classes, dtype=torch.float32) if totals.multilabel else empty(n_own)
        train, val, test = share(totals.num_train), share(totals.num_val), share(totals.num_test)
        plan = HaloPlan.meta(send_counts, recv_counts)
        return cls(
            rank,
            num_parts,
            empty(n_own),
            empty(n_halo),
            graph,
            plan,
            x,
            y if totals.num_classes else None,
            train,
            val,
            test,
            totals,
        )

"""BNS-GCN: every epoch each rank keeps a random sample of its boundary nodes (or edges) and stays unbiased."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from harness.codecs import Cast
from harness.effects import Direction, Rows
from harness.errors import InputError
from harness.exchanges import HaloPush, Memory, Route
from harness.graphs import Block, HaloPlan, LocalGraph, Part
from harness.kernels.boundary import draw_rows
from harness.methods.base import Facts, Seen, WireBytes
from harness.methods.edge_cut import EdgeCut, EdgeCutState, message_width
from harness.nn import GNN
from harness.rank import Rank
from harness.tape import Exchange


@dataclass(frozen=True, eq=False)
class BoundarySample:
    """One epoch's boundary nodes: the graph and the route without dropped nodes, and factors of their rows."""

    graph: LocalGraph
    kept: Tensor | None = None  # int64 [k], the halo rows that are kept; None = all
    route: Route | None = None  # None when p = 0
    scale: float | Tensor | None = None  # of the rows that this rank sends
    halo_scale: float | Tensor | None = None  # of the same rows at their receivers


@dataclass(frozen=True, eq=False)
class SampledState(EdgeCutState):
    """An edge-cut state with the share of all edges that dropedge keeps, and the halo block in the host's memory."""

    keep: float
    host_halo: Block | None  # rebuild = host


@dataclass(frozen=True, kw_only=True)
class BNSGCN(EdgeCut):
    """Boundary node sampling (Alg. 1): the sample of an epoch serves all layers that exchange, in both directions.

    A precomputed input layer uses all boundary nodes, as the authors' does. Every other one uses the epoch's sample H_i
    like the layers above it (Alg. 1, lines 5 and 10): layer0=cache holds the features of all boundary nodes and reads
    those of the sample, times 1/p where aggregation is linear; its losses are those of layer0=exchange. With p = 0 and
    an input layer that is not precomputed, no rank sees anything of another part.

    The receiver draws which of its halo nodes it keeps and tells their owners (4 bytes per kept node and 8 per pair,
    booked as `other`). Kept rows are multiplied by 1/p, so the aggregated halo is unbiased in sum, mean and GCN layers
    (with fixed counts unless a pair has too few nodes to keep one, with dropedge up to its degrees); attention weighs
    its neighbours itself and is not scaled. Bytes per layer and direction: kept rows x width x 4. p = 1 is vanilla,
    p = 0 keeps no boundary node and sends nothing. Memory per rank by Eq. 4 is in the result beside the ledger's.

    Options:
        p: share of boundary nodes kept.
        sampling: bernoulli draws every boundary node alone (the paper); fixed keeps int(p * n) of each pair's n nodes
            and scales by the realised share (the authors' code). The comparisons of Table 9 drop as many edges: bes
            drops edges from boundary nodes (kept ones scaled by 1/p), dropedge drops edges anywhere (degrees become
            those expected after dropping); a boundary node travels while one of its edges is left.
        rebuild: where the block of edges from kept boundary nodes is made every epoch: on the device, or on the host,
            which then copies its index arrays, (2 edges + rows + kept + 2) x 4 bytes, and 8 bytes a kept node to the
            device (swap). Nodes are drawn on the host in either case; a model prices what the host does by the bytes
            that it writes (Table 12).
    """

    p: float = 0.1
    sampling: Literal["bernoulli", "fixed", "bes", "dropedge"] = "bernoulli"
    rebuild: Literal["device", "host"] = "device"

    name = "bns-gcn"
    facts = Facts(
        cut="edge", exact=False, repeats=True, lossy=True, unbiased=True, exact_when={"p": 1.0},
        paper="BNS-GCN, Alg. 1",
    )  # fmt: skip

    def promises(self) -> Facts:
        """At p = 0 aggregation is biased, because every boundary row is missing."""
        nothing = self.p == 0.0
        facts, apart = super().promises(), self.layer0 in ("cache", "exchange") and self.sampling != "dropedge"
        return replace(facts, unbiased=facts.unbiased and not nothing, bounded=nothing, isolated=nothing and apart)

    def error_bound(self, num_ranks: int) -> float:
        return 1.0

    def rows_sent(self, ranks: Sequence[Seen]) -> int:
        return super().rows_sent(ranks) if self.p == 1.0 else round(sum(r.observed["kept nodes"][0] for r in ranks))

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int:
        return 4 * message_width(model, l)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """Kept rows, and the messages that announce them: 4 per row and 8 per pair of ranks."""
        found, size = super().wire_bytes(model, ranks, epoch), len(ranks)
        if found is not None and self.p < 1.0 and (self.p > 0.0 or self.sampling == "dropedge"):
            found["other"] = {-1: 4 * self.rows_sent(ranks) + 8 * size * (size - 1)}
        return found

    def validate(self) -> None:
        if not 0.0 <= self.p <= 1.0:
            raise InputError(f"bns-gcn: p must be in [0, 1], not {self.p}")

    def idle(self) -> dict[str, str]:
        return {} if self._of_nodes else {"rebuild": f"sampling={self.sampling}"}

    @property
    def _of_nodes(self) -> bool:
        return self.sampling in ("bernoulli", "fixed")

    def boundary_share(self) -> float:
        return self.p if self._of_nodes else 1.0

    async def setup(self, rank: Rank, part: Part, model: GNN) -> SampledState:
        """The set-up of every edge cut; dropedge also counts all edges and those between parts."""
        state = await super().setup(rank, part, model)
        cut, edges = part.graph.halo.nnz, part.graph.own.nnz + part.graph.halo.nnz
        if self.sampling == "dropedge" and not rank.shapes_only:
            counts = torch.tensor([cut, edges], dtype=torch.int64)
            cut, edges = (await rank.all_reduce(counts.to(rank.device), label="edges", direction="other")).tolist()
        halo = state.graph.halo if rank.shapes_only else state.graph.halo.to("cpu")
        keep = 1.0 - (1.0 - self.p) * cut / max(edges, 1)
        return SampledState(**vars(state), keep=keep, host_halo=halo if self.rebuild == "host" else None)

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> BoundarySample:
        assert isinstance(state, SampledState)
        if self.p == 1.0:
            return BoundarySample(state.graph, route=state.route)
        if self._of_nodes:
            graph, kept, counts = await self._nodes(rank, part, state)
        else:
            with rank.span("sample"):
                graph, kept, counts = self._edges(rank, part, state)
        rank.observe("kept nodes", float(counts.sum()), float(part.plan.recv_counts.sum()))
        if self.p == 0.0 and self.sampling != "dropedge":
            return BoundarySample(graph, kept)
        return await self._announce(rank, part, graph, kept, counts)

    async def _announce(
        self, rank: Rank, part: Part, graph: LocalGraph, kept: Tensor, counts: np.ndarray
    ) -> BoundarySample:
        """Send the drawn rows' indices to their owners; returns the sample including the rows to send."""
        starts = np.cumsum(part.plan.recv_counts) - part.plan.recv_counts
        offsets = torch.from_numpy(np.repeat(starts, counts)).to(kept.device)
        wanted = (kept - offsets).to(torch.int32)
        received = await rank.all_to_all([Rows(wanted, counts, None)], label="sample")
        with rank.span("sample"):
            send_counts = received.counts[0]
            starts = np.cumsum(part.plan.send_counts) - part.plan.send_counts
            first = torch.from_numpy(np.repeat(starts, send_counts)).to(kept.device)
            rows = part.plan.send_rows[received.tensors[0].long() + first]
            route = Route.of(HaloPlan(rows, send_counts, counts), graph.num_own)
            plan = part.plan
            scales = self._scale(plan.send_counts, send_counts, rank), self._scale(plan.recv_counts, counts, rank)
            return BoundarySample(graph, kept, route, *scales)

    async def _nodes(self, rank: Rank, part: Part, state: SampledState) -> tuple[LocalGraph, Tensor, np.ndarray]:
        """Sample nodes: the graph without boundary nodes that were not drawn; kept halo rows, and their number by
        owner."""
        with rank.span("sample"):
            kept, counts = self._draw(rank, part.plan.recv_counts)
            if state.host_halo is None:
                kept = kept.to(rank.device)
                return _with_halo(state.graph, kept), kept, counts
            block = state.host_halo.select_columns(kept, on_host=True)
        arrays = {f.name: getattr(block, f.name) for f in fields(block) if getattr(block, f.name) is not None}
        moved = {name: await self._copied(rank, array) for name, array in arrays.items()}
        kept = await self._copied(rank, kept)
        degree = state.graph.halo_degree[kept]
        return replace(state.graph, halo=Block(**moved), halo_degree=degree), kept, counts

    async def _copied(self, rank: Rank, tensor: Tensor) -> Tensor:
        copied: Tensor = await rank.host_copy(tensor, to_host=False, label="sample")
        return copied

    def _edges(self, rank: Rank, part: Part, state: SampledState) -> tuple[LocalGraph, Tensor, np.ndarray]:
        """Sample edges: as `_nodes`; halo nodes without a remaining edge are dropped."""
        graph, share = state.graph, self.p
        if self.sampling == "dropedge":
            share = state.keep
            own = graph.own.drop_edges(rank.key("own edges"), share, diagonal=True)
            graph = replace(graph, own=own, degree=graph.degree * share, halo_degree=graph.halo_degree * share)
        graph = replace(graph, halo=graph.halo.drop_edges(rank.key("halo edges"), share))
        available = part.plan.recv_counts
        if rank.shapes_only:
            counts = np.round(available * rank.rate("kept nodes")).astype(np.int64)
            kept = torch.empty(int(counts.sum()), dtype=torch.int64, device="meta")
        else:
            kept = graph.halo.t_indptr.diff().nonzero()[:, 0]
            owner = np.repeat(np.arange(len(available)), available)
            counts = np.bincount(owner[kept.cpu().numpy()], minlength=len(available)).astype(np.int64)
        return _with_halo(graph, kept), kept, counts

    def _draw(self, rank: Rank, available: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Kept halo rows, ascending int64 on the host, and their number by owner, int64 [P]."""
        counts = np.floor(self.p * available + (0.5 if self.sampling == "bernoulli" else 0)).astype(np.int64)
        device = "meta" if rank.shapes_only else "cpu"
        nodes = torch.empty(int(available.sum()), dtype=torch.int64, device=device)
        fixed, key = self.sampling == "fixed", rank.key("boundary")
        kept = draw_rows(nodes, available.tolist(), self.p, fixed, key, int(counts.sum()))
        if not rank.shapes_only:
            bounds = np.concatenate([[0], np.cumsum(available)])
            counts = np.diff(np.searchsorted(kept.numpy(), bounds)).astype(np.int64)
        return kept, counts

    def _scale(self, available: np.ndarray, kept: np.ndarray, rank: Rank) -> float | Tensor | None:
        if self.sampling == "dropedge":
            return None
        if self.sampling in ("bernoulli", "bes"):
            return 1.0 / self.p
        share = available / np.maximum(kept, 1)
        return torch.from_numpy(np.repeat(share, kept)).to(rank.device)

    def view(self, state: EdgeCutState, plan: BoundarySample) -> LocalGraph:
        return plan.graph

    def cached_input(self, part: Part, model: GNN, state: EdgeCutState, plan: BoundarySample, key: int) -> Tensor:
        if plan.kept is None:
            return super().cached_input(part, model, state, plan, key)
        assert state.halo_x is not None
        x, nodes = (rows.index_select(0, plan.kept) for rows in (state.halo_x, part.halo_nodes))
        halo, scale = model.message(0, model.drop(x, nodes, key)), plan.halo_scale
        if scale is None or model.aggregation(0) is None:
            return halo
        return halo * (scale if isinstance(scale, float) else scale[:, None].to(halo.dtype))

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: BoundarySample) -> Exchange | None:
        if plan.route is None:
            return None
        scale = plan.scale if model.aggregation(l) is not None else None
        return HaloPush(plan.route, l, Cast(None), Cast(None), scale)


def _with_halo(graph: LocalGraph, kept: Tensor) -> LocalGraph:
    """The graph with the kept halo nodes only."""
    return replace(graph, halo=graph.halo.select_columns(kept), halo_degree=graph.halo_degree[kept])

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
from harness.exchanges import HaloPush, LayerExchange, Memory, Route
from harness.graphs import Block, HaloPlan, HostBlock, LocalGraph, Part
from harness.methods.bases.base import Facts, Seen, WireBytes
from harness.methods.bases.early_gradients import EarlyGradients
from harness.methods.bases.edge_cut import EdgeCutState, OverlappingEdgeCut, message_width
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import SAMPLERS, BoundaryDraw, BoundarySampler


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
    """An edge-cut state with the share that the sampler keeps, and the halo block in the host's memory."""

    share: float
    host_halo: HostBlock | None  # rebuild = host


@dataclass(frozen=True, kw_only=True)
class BNSGCN(EarlyGradients, OverlappingEdgeCut):
    """Boundary node sampling (Alg. 1): the sample of an epoch serves all layers that exchange, in both directions.

    A precomputed input layer uses all boundary nodes, as the authors' does. Every other one uses the epoch's sample H_i
    like the layers above it (Alg. 1, lines 5 and 10): layer0=cache holds the features of all boundary nodes and reads
    those of the sample, times 1/p where aggregation is linear; its losses are those of layer0=exchange. With p = 0 and
    an input layer that is not precomputed, no rank sees anything of another part.

    The receiver draws which of its halo nodes it keeps and tells their owners (booked as `other`): 4 bytes per kept
    node, and 8 per pair for their number, which both know beforehand with sampling=fixed. Kept rows are multiplied by
    1/p, so the aggregated halo is unbiased in sum, mean and GCN layers (with fixed counts unless a pair has too few
    nodes to keep one, with dropedge up to its degrees); attention weighs its neighbours itself and is not scaled.
    Bytes per layer and direction: kept rows x width x 4. p = 1 is vanilla, p = 0 keeps no boundary node and sends
    nothing. Memory per rank by Eq. 4 is in the result beside the ledger's.

    In brief:
        travels: the boundary rows that readers keep in this epoch, their gradients, and the numbers of the nodes
        bytes: 4 d a kept halo row, layer and direction; 4 a kept node and 8 a pair of ranks (fixed: 0) for the numbers
        memory: kept halo rows of every layer (Eq. 4); the features of all halo nodes with layer0=cache

    Options:
        p: share of boundary nodes kept.
        sampling: bernoulli draws every boundary node alone (the paper); fixed keeps int(p * n) of each pair's n nodes
            and scales by the realised share (the authors' code). The comparisons of Table 9 drop as many edges: bes
            drops edges from boundary nodes (kept ones scaled by 1/p), dropedge drops edges anywhere (degrees become
            those expected after dropping); a boundary node travels while one of its edges is left. Other packages
            add samplers through the entry-point group `haloscope.samplers`.
        rebuild: where the block of edges from kept boundary nodes is made every epoch: on the device, or on the host,
            which then copies its index arrays, (2 edges + rows + kept + 2) x 4 bytes, to the device (swap). Nodes are
            drawn on the host in either case; a model prices what the host does by the bytes that it writes (Table 12).
    """

    p: float = 0.1
    sampling: str = "bernoulli"
    rebuild: Literal["device", "host"] = "device"

    name = "bns-gcn"
    bf16 = True
    facts = Facts(
        cut="edge", exact=False, repeats=True, lossy=True, unbiased=True, exact_when={"p": 1.0},
        paper="BNS-GCN, Alg. 1",
    )  # fmt: skip

    def promises(self) -> Facts:
        """At p = 0 aggregation is biased, because every boundary row is missing."""
        nothing = self.p == 0.0
        facts, apart = super().promises(), self.layer0 in ("cache", "exchange") and self._sends_nothing()
        return replace(facts, unbiased=facts.unbiased and not nothing, bounded=nothing, isolated=apart)

    def error_bound(self, num_ranks: int) -> float:
        return 1.0

    def rows_sent(self, ranks: Sequence[Seen]) -> int:
        return super().rows_sent(ranks) if self.p == 1.0 else round(sum(r.observed["kept nodes"][0] for r in ranks))

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int:
        return 4 * message_width(model, l)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """Kept rows, and the messages that announce them: 4 per row, 8 per pair of ranks for unknown counts."""
        found, size = super().wire_bytes(model, ranks, epoch), len(ranks)
        if found is not None and self.p < 1.0 and not self._sends_nothing():
            known = SAMPLERS.find(self.sampling).counts(self.p, np.zeros(size, np.int64)) is not None
            found["other"] = {-1: 4 * self.rows_sent(ranks) + (0 if known else 8 * size * (size - 1))}
        return found

    def validate(self) -> None:
        if not 0.0 <= self.p <= 1.0:
            raise InputError(f"bns-gcn: p must be in [0, 1], not {self.p}")
        SAMPLERS.find(self.sampling)

    def idle(self) -> dict[str, str]:
        return {} if SAMPLERS.find(self.sampling).draws_nodes else {"rebuild": f"sampling={self.sampling}"}

    def plugins(self) -> tuple[object, ...]:
        return (SAMPLERS.find(self.sampling),)

    def boundary_share(self) -> float:
        return self.p if SAMPLERS.find(self.sampling).draws_nodes else 1.0

    def _sends_nothing(self) -> bool:
        return self.p == 0.0 and SAMPLERS.find(self.sampling).thins_halo

    async def setup(self, rank: Rank, part: Part, model: GNN) -> SampledState:
        """The set-up of every edge cut; the sampler says what share it keeps, for which dropedge counts edges."""
        state = await super().setup(rank, part, model)
        share = await SAMPLERS.find(self.sampling).share(rank, part, self.p)
        halo = HostBlock.of(state.graph.halo) if self.rebuild == "host" else None
        return SampledState(**vars(state), share=share, host_halo=halo)

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> BoundarySample:
        assert isinstance(state, SampledState)
        if self.p == 1.0:
            return BoundarySample(state.graph, route=state.route)
        sampler, graph = SAMPLERS.find(self.sampling), state.graph
        with rank.span("sample"):
            whole = graph if state.host_halo is None else replace(graph, halo=state.host_halo)
            draw = sampler.draw(rank, part.plan.recv_counts, whole, state.share)
        if state.host_halo is not None:
            draw = replace(draw, graph=replace(draw.graph, halo=await self._copied(rank, draw.graph.halo)))
        rank.observe("kept nodes", float(draw.counts.sum()), float(part.plan.recv_counts.sum()))
        if self._sends_nothing():
            return BoundarySample(draw.graph, draw.kept)
        return await self._announce(rank, part, draw, sampler, state.share)

    async def _announce(
        self, rank: Rank, part: Part, draw: BoundaryDraw, sampler: BoundarySampler, share: float
    ) -> BoundarySample:
        """Send the drawn rows' indices to their owners; returns the sample including the rows to send."""
        kept, counts, graph = draw.kept, draw.counts, draw.graph
        starts = np.cumsum(part.plan.recv_counts) - part.plan.recv_counts
        offsets = torch.from_numpy(np.repeat(starts, counts)).to(kept.device)
        wanted = (kept - offsets).to(torch.int32)
        known = sampler.counts(share, part.plan.send_counts)
        received = await rank.all_to_all([Rows(wanted, counts, known)], label="sample")
        with rank.span("sample"):
            send_counts = received.counts[0]
            starts = np.cumsum(part.plan.send_counts) - part.plan.send_counts
            first = torch.from_numpy(np.repeat(starts, send_counts)).to(kept.device)
            rows = part.plan.send_rows[received.tensors[0].long() + first]
            route = Route.of(HaloPlan(rows, send_counts, counts), graph.num_own)
            sent = sampler.scale(share, part.plan.send_counts, send_counts, rank.device)
            read = sampler.scale(share, part.plan.recv_counts, counts, rank.device)
            return BoundarySample(graph, kept, route, sent, read)

    async def _copied(self, rank: Rank, block: Block) -> Block:
        """A block of the host's memory on the device, array by array."""
        found: dict[str, Tensor] = {}
        for name in (f.name for f in fields(block) if getattr(block, f.name) is not None):
            found[name] = await rank.host_copy(getattr(block, name), to_host=False, label="sample")
        return Block(**found)

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

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: BoundarySample) -> LayerExchange | None:
        if plan.route is None:
            return None
        scale = plan.scale if model.aggregation(l) is not None else None
        return HaloPush(plan.route, l, Cast(None), Cast(None), scale)

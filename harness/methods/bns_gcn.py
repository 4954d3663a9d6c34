"""BNS-GCN: every epoch each rank keeps a random sample of its boundary nodes (or edges) and stays unbiased."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from harness.codecs import Cast
from harness.effects import Direction, Rows
from harness.errors import InputError
from harness.exchanges import HaloPush, Memory, Route
from harness.graphs import HaloPlan, LocalGraph, Part
from harness.methods.base import Facts, Seen, WireBytes
from harness.methods.edge_cut import EdgeCut, EdgeCutState, message_width
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import SAMPLERS, BoundaryDraw, BoundarySampler
from harness.tape import Exchange


@dataclass(frozen=True, eq=False)
class BoundarySample:
    """One epoch's boundary nodes: the graph and the route without dropped nodes, and the factor of sent rows."""

    graph: LocalGraph
    route: Route | None  # None when p = 0
    scale: float | Tensor | None


@dataclass(frozen=True, eq=False)
class SampledState(EdgeCutState):
    """An edge-cut state with the share that the sampler keeps."""

    share: float


@dataclass(frozen=True, kw_only=True)
class BNSGCN(EdgeCut):
    """Boundary node sampling (Alg. 1): the sample of an epoch serves all layers that exchange, in both directions.

    A precomputed or cached input layer uses all boundary nodes, as the authors' precomputed one does.

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
            those expected after dropping); a boundary node travels while one of its edges is left. Other packages
            add samplers through the entry-point group `haloscope.samplers`.
    """

    p: float = 0.1
    sampling: str = "bernoulli"

    name = "bns-gcn"
    facts = Facts(
        cut="edge", exact=False, repeats=True, lossy=True, unbiased=True, exact_when={"p": 1.0},
        paper="BNS-GCN, Alg. 1",
    )  # fmt: skip

    def promises(self) -> Facts:
        """At p = 0 aggregation is biased, because every boundary row is missing."""
        nothing = self.p == 0.0
        facts = super().promises()
        return replace(facts, unbiased=facts.unbiased and not nothing, bounded=nothing)

    def error_bound(self, num_ranks: int) -> float:
        return 1.0

    def rows_sent(self, ranks: Sequence[Seen]) -> int:
        return super().rows_sent(ranks) if self.p == 1.0 else round(sum(r.observed["kept nodes"][0] for r in ranks))

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int:
        return 4 * message_width(model, l)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """Kept rows, and the messages that announce them: 4 per row and 8 per pair of ranks."""
        found, size = super().wire_bytes(model, ranks, epoch), len(ranks)
        if found is not None and self.p < 1.0 and not self._sends_nothing():
            found["other"] = {-1: 4 * self.rows_sent(ranks) + 8 * size * (size - 1)}
        return found

    def validate(self) -> None:
        if not 0.0 <= self.p <= 1.0:
            raise InputError(f"bns-gcn: p must be in [0, 1], not {self.p}")
        SAMPLERS.find(self.sampling)

    def boundary_share(self) -> float:
        return self.p if SAMPLERS.find(self.sampling).draws_nodes else 1.0

    def _sends_nothing(self) -> bool:
        return self.p == 0.0 and SAMPLERS.find(self.sampling).thins_halo

    async def setup(self, rank: Rank, part: Part, model: GNN) -> SampledState:
        """The set-up of every edge cut; the sampler says what share it keeps, for which dropedge counts edges."""
        state = await super().setup(rank, part, model)
        return SampledState(**vars(state), share=await SAMPLERS.find(self.sampling).share(rank, part, self.p))

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> BoundarySample:
        assert isinstance(state, SampledState)
        if self.p == 1.0:
            return BoundarySample(state.graph, state.route, None)
        sampler = SAMPLERS.find(self.sampling)
        with rank.span("sample"):
            draw = sampler.draw(rank, part.plan.recv_counts, state.graph, state.share)
        rank.observe("kept nodes", float(draw.counts.sum()), float(part.plan.recv_counts.sum()))
        if self._sends_nothing():
            return BoundarySample(draw.graph, None, None)
        return await self._announce(rank, part, draw, sampler, state.share)

    async def _announce(
        self, rank: Rank, part: Part, draw: BoundaryDraw, sampler: BoundarySampler, share: float
    ) -> BoundarySample:
        """Send the drawn rows' indices to their owners; returns the sample including the rows to send."""
        kept, counts, graph = draw.kept, draw.counts, draw.graph
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
            return BoundarySample(graph, route, sampler.scale(share, part.plan.send_counts, send_counts, rank.device))

    def view(self, state: EdgeCutState, plan: BoundarySample) -> LocalGraph:
        return plan.graph

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: BoundarySample) -> Exchange | None:
        if plan.route is None:
            return None
        scale = plan.scale if model.aggregation(l) is not None else None
        return HaloPush(plan.route, l, Cast(None), Cast(None), scale)

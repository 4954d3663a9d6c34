"""DistGNN as EC-Graph ran it: an edge cut whose halo rows are fetched in turns over r epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.errors import InputError
from harness.exchanges import FetchTurn, HaloFetch, LayerExchange, LayerPull, Memory, Turn
from harness.graphs import BOTH_DIRECTIONS, Part, Totals
from harness.methods.bases.base import Facts, Seen, WireBytes, all_reduce_bytes
from harness.methods.bases.edge_cut import EdgeCut, EdgeCutState
from harness.nn import GNN, Conv
from harness.rank import Rank


@dataclass(frozen=True, eq=False)
class TurnsState(EdgeCutState):
    """The state of an edge cut, and the turns of its halo."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True, eq=False)
class TurnOfEpoch:
    """The turn of this epoch, and where rows are remembered."""

    turn: Turn
    memory: Memory | None


@dataclass(frozen=True, kw_only=True)
class DistGNNEC(EdgeCut):
    """The system called DistGNN in EC-Graph's tables; not DistGNN, which cuts vertices and delays partial sums.

    A rank's own nodes are cut into r slices; in epoch e every layer fetches the remote neighbours of slice e mod r, H
    forwards and G backwards, and takes zeros for all others. Nothing is late. Bytes per layer: 4 x width x rows of the
    turn, the width of the layer's input forwards, of its output backwards; layer 0's input has no gradient. On dense
    graphs nearly every slice reads nearly every halo node, and little is saved. Evaluation fetches everything.

    In brief:
        travels: rows H that this epoch's slice of the own nodes reads forwards, gradients G backwards
        bytes: 4 d a row of the turn; d the input width forwards, the output width backwards
        memory: vanilla's; with missing=cached the last value of every halo row and layer
        staleness: none; with missing=cached up to r - 1 epochs

    Options:
        r: turns; 1 is exact, and 5 is what EC-Graph's tables use.
        missing: rows of other turns are zero, as in the authors' code, or cached: those of their last turn, which the
            paper's words suggest ("only part of the vertices are updated by the latest messages").
        bins: targets slices the own nodes, whose neighbours are fetched (the authors' code); halo the halo nodes, each
            of which is fetched once in r epochs then.
    """

    r: int = 5
    missing: Literal["zero", "cached"] = "zero"
    bins: Literal["targets", "halo"] = "targets"

    name = "distgnn-ec"
    facts = Facts(
        cut="edge", exact=False, lossy=True, bounded=True, exact_when={"r": 1},
        paper="EC-Graph, Sec. V (its comparison under the name of DistGNN)",
    )  # fmt: skip

    def promises(self) -> Facts:
        """With remembered rows nothing is missing once every turn has come: rows are up to r - 1 epochs old."""
        facts = super().promises()
        if self.missing == "cached" and not facts.exact:
            return replace(facts, lossy=False, bounded=False, staleness=self.r - 1)
        return facts

    def lossless(self) -> DistGNNEC:
        """Exact; with remembered rows every halo row has one turn, so that its age is known."""
        return replace(self, bins="halo") if self.missing == "cached" and self.r > 1 else replace(self, r=1)

    def error_bound(self, num_ranks: int) -> float:
        """A row that is missing."""
        return 1.0

    def validate(self) -> None:
        if self.r < 1:
            raise InputError(f"distgnn-ec: r must be at least 1, not {self.r}")

    def idle(self) -> dict[str, str]:
        return dict.fromkeys(("missing", "bins"), "r=1") if self.r == 1 else {}

    def cycle(self) -> int:
        return self.r

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if not totals.symmetric:
            raise InputError(
                f"distgnn-ec pulls gradients along the edges of rows: the graph must be symmetric; {BOTH_DIRECTIONS}"
            )
        read = [model.layers[l] for l in range(model.depth) if model.exchanges(l)]
        if any(getattr(layer, "aggregation", None) is None for layer in read):
            raise InputError("distgnn-ec needs layers whose aggregation is linear in rows (gcn, sage)")

    def input_layer(self, model: GNN) -> str:
        """`layer0`; auto means cache, as in EC-Graph."""
        return "cache" if self.layer0 == "auto" else super().input_layer(model)

    async def setup(self, rank: Rank, part: Part, model: GNN) -> TurnsState:
        state = await super().setup(rank, part, model)
        turns = [await Turn.of(rank, state.graph, part.plan, k, self.r, self.bins) for k in range(self.r)]
        return TurnsState(**vars(state), turns=tuple(turns))

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> TurnOfEpoch:
        assert isinstance(state, TurnsState)
        turn = state.turns[rank.epoch % self.r]
        rank.observe("fetched rows", float(turn.plan.recv_counts.sum()), float(part.plan.recv_counts.sum()))
        return TurnOfEpoch(turn, memory if self.missing == "cached" and self.r > 1 else None)

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: TurnOfEpoch) -> LayerExchange:
        forwards = FetchTurn(plan.turn, l, "forward", plan.memory)
        if l == 0:
            return HaloFetch(forwards)
        layer, backwards = model.layers[l], FetchTurn(plan.turn, l, "backward", plan.memory)
        assert isinstance(layer, Conv)
        return LayerPull(layer, state.graph, forwards, backwards, linear_first=model.linear_first(l))

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """The formula of the class; the rows of a turn are those that a rank observed."""
        found: WireBytes = {"forward": {}, "backward": {}, "reduce": {-1: all_reduce_bytes(model, len(ranks))}}
        rows = round(sum(seen.observed["fetched rows"][0] for seen in ranks))
        for l in range(model.depth):
            if model.exchanges(l) and (l > 0 or ranks[0].state.layer0 == "exchange"):
                found["forward"][l] = 4 * rows * model.widths[l]
                if l > 0:
                    found["backward"][l] = 4 * rows * model.widths[l + 1]
        return found

"""EC-Graph-S: EC-Graph on neighbours that are sampled once, before training."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from harness.errors import InputError
from harness.exchanges import Boundary, LayerExchange, Memory
from harness.graphs import HaloPlan, Part, Totals
from harness.methods.bases.base import Facts, Seen
from harness.methods.bases.edge_cut import EdgeCutState
from harness.methods.ec_graph import ECEpoch, ECGraph, ECState
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import EVERYTHING, Sample, sample_layers
from harness.tape import Tape


@dataclass(frozen=True, eq=False)
class ECSampledState(ECState):
    """EC-Graph's state on the whole graph, for evaluation, and on the sample, for training.

    Attributes:
        whole, part: the rank's part, and its sampled subset.
        read_x: [part's halo nodes, F], their features.
        pulled: per layer, forwards and backwards, the rows that are sent and the numbers of the nodes that are read.
    """

    sample: Sample
    whole: Part
    part: Part
    read_x: Tensor
    pulled: list[tuple[tuple[Boundary, Tensor], tuple[Boundary, Tensor]]]


@dataclass(frozen=True, kw_only=True)
class ECGraphS(ECGraph):
    """EC-Graph in sampling mode (Sec. III-C and V, Table IV).

    The paper states only that fan-outs are per layer and that sampling is part of the preprocessing; the authors' code
    keeps one fixed set of neighbours per vertex and trains on all training vertices at once. Accordingly, each layer
    keeps, once for the whole run, at most a fan-out of every vertex's neighbours, uniformly without replacement, for
    the vertices that the training vertices need there; an epoch is one step over all training vertices. Degrees in
    aggregation are those of the sample. The sample does not depend on the partition. Own nodes that no layer needs are
    not computed. Evaluation uses the whole graph, whose features are kept in addition to those of the sample.

    Kept edges are not symmetric, so gradients are sent against them, to the owners of the nodes that were read. Bytes:
    the formulas of ec-graph with n rows that are read forwards, and n rows that read backwards; a responder tells its
    share of predicted rows in every layer to all ranks that read from it in any. The sample costs a
    byte per edge between ranks, before training. Features of all halo nodes are cached.
    A shapes-only run takes the sampled shares of edges and rows from a recorded run.

    In brief:
        travels: as ec-graph, of the rows that the fixed sample reads
        bytes: ec-graph's formulas with the sampled rows; before training a byte per edge between ranks
        memory: ec-graph's for the sampled rows; the features of all halo nodes, for evaluation
        staleness: predicted rows rest on exact ones up to `period` epochs old

    Options:
        fanouts: neighbours kept per hop, the training vertices' own first (so for the last layer first), with slashes
            between; full keeps all. Table IV: Reddit 10/5, 5/2/2, 5/5/1/1; products 20/5, 10/5/1, 10/5/2/2.
    """

    fanouts: str = "10/5"

    name = "ec-graph-s"
    facts = Facts(
        cut="edge", exact=False, settles=12, lossy=True, compensated=True,
        vanishes_with={"fanouts": "full/full", "fp": "exact", "bp": "exact"},
        paper="EC-Graph, Sec. III-C and V (EC-Graph-S)",
    )  # fmt: skip

    def typical(self, layers: int) -> ECGraphS:
        """With a fan-out for every layer, the last one repeated."""
        words = self.fanouts.split("/")
        return replace(self, fanouts="/".join((words + [words[-1]] * layers)[:layers]))

    def lossless(self) -> ECGraphS:
        """The same sample with uncompressed messages."""
        return replace(self, fp="exact", bp="exact")

    def plans(self, seen: Seen, l: int) -> tuple[HaloPlan, HaloPlan]:
        layer = seen.state.sample.layers[l]
        return layer.forward.plan, layer.backward.plan

    def validate(self) -> None:
        super().validate()
        self._hops()
        if self.layer0 not in ("auto", "cache"):
            raise InputError(f"{self.name} caches the input layer: use layer0=cache")

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        depth = sum(model.exchanges(l) for l in range(model.depth))
        if len(self._hops()) != depth:
            raise InputError(f"{self.name}: fanouts={self.fanouts} has {len(self._hops())} hops; the model has {depth}")

    @property
    def _attends(self) -> bool:
        """The attention exchange needs edges that are kept in both directions."""
        return False

    def _hops(self) -> list[int]:
        """Fan-outs by hop, beginning at the training vertices."""
        words = self.fanouts.split("/")
        if not all(w == "full" or (w.isdecimal() and int(w) > 0) for w in words):
            raise InputError(f"{self.name}: fanouts are positive numbers or full, such as 10/5, not {self.fanouts!r}")
        return [EVERYTHING if w == "full" else int(w) for w in words]

    async def setup(self, rank: Rank, part: Part, model: GNN) -> ECSampledState:
        state = await super().setup(rank, part, model)
        fanouts = self._hops()[::-1]
        if rank.shapes_only:
            sample = Sample.expected(rank, part, len(fanouts))
        else:
            keys = [rank.key("neighbours", l, per_rank=False) for l in range(model.depth) if model.exchanges(l)]
            sample = await sample_layers(rank, part, fanouts, keys)
        assert state.halo_x is not None
        read = sample.layers[0].read
        read_x = state.halo_x.index_select(0, read) if len(read) < len(state.halo_x) else state.halo_x
        ids = state.halo_ids
        pulled = [
            (
                (self._requested(layer.forward), ids.index_select(0, layer.read)),
                (self._requested(layer.backward), ids.index_select(0, layer.reading)),
            )
            for layer in sample.layers
        ]
        return ECSampledState(
            **vars(state), sample=sample, whole=part, part=sample.of(part), read_x=read_x, pulled=pulled
        )

    def measures(self, part: Part, model: GNN, state: EdgeCutState) -> dict[str, float]:
        assert isinstance(state, ECSampledState)
        return super().measures(state.part, model, state)

    def trained(self, part: Part, state: ECSampledState) -> Part:
        return state.part

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> ECEpoch:
        assert isinstance(state, ECSampledState)
        state.sample.observe(rank, state.whole)
        return await super().begin(rank, state.whole, state, memory)

    async def forward(
        self, rank: Rank, part: Part, model: GNN, state: EdgeCutState, memory: Memory, tape: Tape
    ) -> Tensor:
        assert isinstance(state, ECSampledState)
        sampled = replace(state, graph=state.part.graph, halo_x=state.read_x)
        return await super().forward(rank, part, model, sampled, memory, tape)

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: ECEpoch) -> LayerExchange:
        assert isinstance(state, ECSampledState)
        sample = state.sample.layers[l]
        forth, back = state.pulled[l]
        fetches = self._forwards(l, model, plan, *forth), self._backwards(l, plan, *back)
        return self._pull(l, model, state, fetches, sample.graph, sample.reverse)

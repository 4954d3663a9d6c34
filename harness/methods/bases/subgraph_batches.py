"""Mini-batches that are induced subgraphs of a rank's own part: what Cluster-GCN and GraphSAINT share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from harness.exchanges import Memory
from harness.graphs import Block, Part
from harness.methods.bases.base import Seen, WireBytes
from harness.methods.bases.mini_batch import Batched, announce
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import Induced, SampledBatch, SampledLayer, induced_subgraph
from harness.tape import Tape


@dataclass(frozen=True, eq=False)
class OwnPartState:
    """The result of `setup`.

    Attributes:
        block: edges among own nodes, on the host, where subgraphs are drawn.
        trains: bool [n_own], whether a node is a training node, on the host.
        steps: of an epoch, the same on every rank.
    """

    block: Block
    trains: Tensor
    steps: int


@dataclass(frozen=True, kw_only=True)
class SubgraphBatches(Batched):
    """Base of the methods whose batch is the subgraph induced on some of a rank's own nodes.

    All layers run on that subgraph, so a batch needs nothing from other ranks: edges between ranks are never seen.
    A subclass says what an epoch's draws are (`batches`: any tensors), which nodes a draw has (`chosen`), and how edges
    and losses are weighed (`weigh`).
    """

    async def setup(self, rank: Rank, part: Part, model: GNN) -> OwnPartState:
        """The own block on the host, and the steps on which the ranks agree. 8 bytes for every pair of ranks."""
        self.validate()
        self.check(model, part.totals, part.num_parts)
        block = part.graph.own if part.nodes.is_meta else part.graph.own.to("cpu")
        trains = torch.zeros(block.num_rows, dtype=torch.bool, device=block.indices.device)
        if not trains.is_meta:
            trains[part.train.cpu()] = True
        steps = await announce(rank, self.own_steps(part), label="steps")
        return OwnPartState(block, trains, max(int(steps.max(initial=0)), 1))

    @abstractmethod
    def own_steps(self, part: Part) -> int:
        """Steps that an epoch of this rank would have alone."""

    @abstractmethod
    def chosen(self, rank: Rank, part: Part, state: Any, draw: Tensor) -> tuple[Tensor, int, int]:
        """The local rows of a draw, ascending, on the host; edges and training nodes to expect with shapes only."""

    @abstractmethod
    def weigh(self, model: GNN, part: Part, state: Any, rows: Tensor, found: Induced, x: Tensor) -> SampledBatch:
        """The batch with its layers and the labels of all rows; `subgraph` keeps those of training nodes."""

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, seeds: Tensor, step: int
    ) -> SampledBatch:
        """The subgraph of one of an epoch's draws."""
        rows, edges, trained = self.chosen(rank, part, state, seeds)
        return self.subgraph(rank, part, model, state, rows, edges, trained)

    def subgraph(
        self, rank: Rank, part: Part, model: GNN, state: Any, rows: Tensor, edges: int, trained: int
    ) -> SampledBatch:
        """The batch on these local rows; `edges` and `trained` are sizes to expect with shapes only."""
        assert part.x is not None
        found = induced_subgraph(state.block, rows, edges)
        loss_rows = rows.new_empty(trained) if rows.is_meta else state.trains.index_select(0, rows).nonzero()[:, 0]
        rows, loss_rows = rows.to(rank.device), loss_rows.to(rank.device)
        batch = self.weigh(model, part, state, rows, _moved(found, rank), part.x.index_select(0, rows))
        weight = None if batch.weight is None else batch.weight.index_select(0, loss_rows)
        return replace(batch, rows=loss_rows, y=batch.y.index_select(0, loss_rows), weight=weight)

    async def forward(self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, tape: Tape) -> Tensor:
        """Logits of the own nodes, with the whole part as one batch."""
        count = state.block.num_rows
        rows = torch.arange(count, device=state.block.indices.device)
        batch = self.subgraph(rank, part, model, state, rows, state.block.nnz, len(part.train))
        return self.logits(rank, model, batch, 0)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The all-reduces alone."""
        return self.reduce_bytes(model, ranks)


def uniform_layers(
    model: GNN, block: Block, weight: Tensor | None, own_weight: Tensor | None = None
) -> tuple[SampledLayer | None, ...]:
    """A layer of the same edges and weights for every layer of the model that reads neighbours."""
    layer = SampledLayer(block, weight, own_weight)
    return tuple(layer if model.exchanges(l) else None for l in range(model.depth))


def global_ids(part: Part, rows: Tensor, depth: int) -> tuple[Tensor, ...]:
    """`SampledBatch.nodes` where every layer has the same rows."""
    return (part.nodes.index_select(0, rows),) * depth


def _moved(found: Induced, rank: Rank) -> Induced:
    return Induced(found.block.to(rank.device), found.edges.to(rank.device))

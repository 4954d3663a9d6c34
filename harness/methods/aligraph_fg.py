"""AliGraph's full-graph mode: one batch of ego trees is drawn before training, and every epoch is a step on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from harness.errors import InputError
from harness.exchanges import Memory
from harness.graphs import Block, Part, Totals
from harness.methods.bases.base import Facts, Method
from harness.methods.bases.self_weighted import SelfWeighted, refuse_attention
from harness.methods.bases.stored_batches import StoredBatches, StoredState
from harness.nn import GNN, Aggregation
from harness.rank import Rank
from harness.sampling import SampledBatch, neighbour_weights

PLAIN = SelfWeighted(own=1.0, mean=False)


@dataclass(frozen=True, kw_only=True)
class AliGraphFG(StoredBatches):
    """The option `full_graph_mode` of AliGraph's GCN example (alibaba/graph-learn), AliGraph-FG of EC-Graph's tables.

    When the model is built, each rank draws the ego trees of its training nodes; they become constants, and every
    epoch is one step on them, without sampling and without features on the wire. Trees are not merged: a node that is
    reached twice is kept and computed twice, so hop k has training nodes x fan-outs of the first k hops rows. A layer
    sums the own row and those of the kept neighbours without a normalisation by degrees. With all neighbours and the
    model's normalisation it is full-graph training.

    The source keeps the first neighbours by edge weight, all of which are equal: a fixed choice. Here it is a random
    one, drawn once. Its workers update parameter servers asynchronously; here a step is synchronous.

    Bytes per epoch over P ranks: the all-reduce, 8 (P - 1) (parameters + 2), as many as pulling parameters from servers
    and pushing gradients to them. At the set-up, listed as `prepared_bytes`, as for agl. Memory: the rows of all trees
    with F features, and an edge for each.
    Evaluation is on the whole graph with the same sums.

    In brief:
        travels: parameters' gradients alone; before training, lists and features of the ego trees
        bytes: 8 (P - 1) (parameters + 2) an epoch; before training as agl
        memory: the rows of all ego trees with F features, repeated nodes included, and an edge for each

    Options:
        batch: training nodes of a rank, drawn once, that have trees; the others are never trained on. 0 for all.
        norm: none sums rows as they are; model by the model's matrix with full degrees, neighbours weighing d_v / k_v
            times as much.
        merge: every node once, with the neighbours of the first hop at which it is reached.
    """

    batch: int = 0
    norm: Literal["none", "model"] = "none"
    merge: bool = False

    name = "aligraph-fg"
    facts = Facts(
        cut="edge", exact=False, lossy=True, repeats=True, exact_when={"fanout": "full", "norm": "model", "batch": 0},
        vanishes_with={"fanout": "full", "norm": "model", "batch": 0},
        paper="AliGraph's full_graph_mode, compared in EC-Graph",
    )  # fmt: skip

    def validate(self) -> None:
        super().validate()
        if self.batch < 0:
            raise InputError(f"aligraph-fg: batch must be 0 (all training nodes) or more, not {self.batch}")

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if self.norm == "none":
            refuse_attention("aligraph-fg: norm=none", model)

    def exact(self) -> Method | None:
        return PLAIN if self.norm == "none" else None

    async def setup(self, rank: Rank, part: Part, model: GNN) -> StoredState:
        """Draw the trees and keep them as the batch of every epoch."""
        self.validate()
        self.check(model, part.totals, part.num_parts)
        seeds = part.train
        if self.batch:
            seeds = seeds[: self.batch]
            if not rank.shapes_only:
                drawn = rank.generator("ego trees").permutation(len(part.train))[: self.batch]
                seeds = part.train.index_select(0, torch.from_numpy(drawn).to(part.train.device))
        state = StoredState(await self.gather(rank, part, model, seeds), seeds, steps=1)
        every = torch.arange(len(seeds), device=state.stored.ids.device)
        found = self.reach(rank, model, state.stored, every, self.merge)
        return replace(state, found=found, constant=self.batch_of(rank, part, model, state, every, found, prune=True))

    def batches(self, rank: Rank, state: StoredState) -> list[Tensor]:
        """The one batch."""
        return [state.seeds]

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, seeds: Tensor, step: int
    ) -> SampledBatch:
        """The constants."""
        if len(state.seeds):
            self.observe(rank, model, state.found)
        batch: SampledBatch = state.constant
        return batch

    def weights(
        self, aggregation: Aggregation, block: Block, degree: Tensor, x: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        if self.norm == "none":
            return PLAIN.weights(block, x)
        return neighbour_weights(aggregation, block, degree[: block.num_cols], x)

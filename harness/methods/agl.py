"""AGL: the neighbourhoods of all training nodes are made before training, and batches merge those of their nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from harness.errors import InputError
from harness.exchanges import Memory
from harness.graphs import Block, Part
from harness.methods.bases.base import Facts
from harness.methods.bases.mini_batch import announce
from harness.methods.bases.stored_batches import StoredBatches, StoredState
from harness.nn import GNN, Aggregation
from harness.rank import Rank
from harness.sampling import SampledBatch, neighbour_weights


@dataclass(frozen=True, kw_only=True)
class AGL(StoredBatches):
    """Training on stored neighbourhoods (Zhang et al., VLDB 2020), as EC-Graph compares with it.

    Before training (GraphFlat), every training node gets its L-hop neighbourhood with features, each hop sampled once,
    uniformly without replacement. A step merges the neighbourhoods of its training nodes, so that every node is there
    once, and prunes them: layer k of L computes only nodes within L - k hops. No row travels in training, and
    neighbourhoods of different ranks overlap, so work is repeated up to P times. Neighbours weigh P_vu d_v / k_v, P the
    model's matrix with full degrees: what the source does about degrees is not said. With all neighbours and all
    training nodes in a step it is full-graph training.

    Bytes per step over P ranks: the all-reduce, 8 (P - 1) (parameters + 2), as many as pulling parameters from servers
    and pushing gradients to them. At the set-up, listed as `prepared_bytes`: 12 for each remote node whose list is
    asked for, 8 for each neighbour in it, 4 F + 12 for each remote node within L hops.
    Memory: the nodes within L hops of a rank's training nodes, with their features, once; one neighbour list a hop.

    Disk: a store with one neighbourhood per training node reads, for each of its training nodes, nodes x (4 F + 8) +
    edges x 16 bytes. They are recorded as `disk_bytes` of an epoch, by training node. They are not in the times of any
    mode: the neighbourhoods are kept in memory, and no cluster of the model has a disk.
    Left out: splitting hub nodes in the preparation, asynchronous steps.

    In brief:
        travels: parameters' gradients alone; before training, lists and features of the nodes within L hops
        bytes: 8 (P - 1) (parameters + 2) a step; before training 12 a remote node asked for, 8 a neighbour, 4 F + 12 a
            remote row
        memory: features of all nodes within L hops of a rank's training nodes, and one list a hop

    Options:
        batch: training nodes of a rank in a step; 0 for all.
        prune: leave out what no later layer reads; it never changes the result.
        io: counted records the bytes read from disk; hidden does not, as where reading ahead hides it.
    """

    batch: int = 1000
    prune: bool = True
    io: Literal["counted", "hidden"] = "counted"

    name = "agl"
    facts = Facts(
        cut="edge", exact=False, lossy=True, exact_when={"fanout": "full", "batch": 0},
        vanishes_with={"fanout": "full", "batch": 0}, paper="AGL (GraphFlat), compared in EC-Graph",
    )  # fmt: skip

    def validate(self) -> None:
        super().validate()
        if self.batch < 0:
            raise InputError(f"agl: batch must be 0 (all training nodes) or more, not {self.batch}")

    async def setup(self, rank: Rank, part: Part, model: GNN) -> StoredState:
        """GraphFlat, and the steps on which the ranks agree."""
        self.validate()
        self.check(model, part.totals, part.num_parts)
        stored = await self.gather(rank, part, model, part.train)
        most = int((await announce(rank, len(part.train), label="training nodes")).max(initial=0))
        disk = None
        if self.io == "counted" and not rank.shapes_only:
            nodes, edges = stored.sizes_alone(len(part.train))
            disk = nodes * (4 * part.totals.num_features + 8) + edges * 16
        return StoredState(stored, part.train, max(-(-most // (self.batch or max(most, 1))), 1), disk=disk)

    def batches(self, rank: Rank, state: StoredState) -> list[Tensor]:
        """Training nodes of every step, by position, in random order; none where other ranks have more steps."""
        order = torch.empty_like(state.seeds)
        if not rank.shapes_only:
            order = torch.from_numpy(rank.generator("batches").permutation(len(order)))
        cut = list(order.split(self.batch or max(len(order), 1)))
        return cut + [order[:0]] * (state.steps - len(cut))

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, seeds: Tensor, step: int
    ) -> SampledBatch:
        """The merged neighbourhoods of a step's training nodes. Records `disk_bytes`, by training node."""
        found = self.reach(rank, model, state.stored, seeds, merge=True)
        if len(seeds):
            self.observe(rank, model, found)
        if state.disk is not None and len(seeds):
            rank.observe("disk_bytes", float(state.disk[seeds].sum()), len(seeds))
        return self.batch_of(rank, part, model, state, seeds, found, self.prune)

    def weights(
        self, aggregation: Aggregation, block: Block, degree: Tensor, x: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        return neighbour_weights(aggregation, block, degree[: block.num_cols], x)

"""Training on neighbourhoods that were drawn once, before training: what AGL and AliGraph share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.errors import InputError
from harness.exchanges import Memory
from harness.graphs import Block, Part, Totals
from harness.methods.bases.base import Seen, WireBytes
from harness.methods.bases.mini_batch import Batched, fan_outs, fan_outs_by_layer
from harness.nn import GNN, Aggregation
from harness.rank import Rank
from harness.sampling import EVERYTHING, Neighbours, Reached, SampledBatch, SampledLayer, Stored, node_of, reached
from harness.tape import Tape


@dataclass(frozen=True, eq=False)
class StoredState:
    """The result of `setup`.

    Attributes:
        stored: the neighbourhoods of the nodes that this rank trains on, which are its first nodes.
        seeds: int64 [n], their local rows, on the rank's device.
        steps: of an epoch, the same on every rank.
        found, constant: the only batch of every epoch, and what it was made of; None where every step makes its own.
        disk: int64 [n], bytes that a store of one neighbourhood per node would read for each; None if they are hidden.
    """

    stored: Stored
    seeds: Tensor
    steps: int
    found: Reached | None = None
    constant: SampledBatch | None = None
    disk: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class StoredBatches(Batched):
    """Base of the methods that gather the neighbourhoods of their training nodes once and then train without exchange.

    Every node keeps its neighbours for the whole run. An epoch's only bytes are the all-reduces of its steps. A
    subclass defines `batches` and `draw`.

    Options:
        fanout: neighbours kept per node, the training nodes' own first, with slashes between, not growing; one number
            for every layer, full for all neighbours.
    """

    fanout: str = "10"

    def validate(self) -> None:
        numbers = fan_outs(self.name, self.fanout)
        if list(numbers) != sorted(numbers, reverse=True):
            raise InputError(
                f"{self.name}: fanout={self.fanout} grows from hop to hop; a node keeps the neighbours of the hop at "
                "which it is first reached, so give numbers that do not grow"
            )

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if not self.hops(model):
            raise InputError(f"{self.name} needs a layer that reads neighbours")

    def hops(self, model: GNN) -> tuple[int, ...]:
        """The fan-out of every hop, the training nodes' own first."""
        return tuple(f for f in reversed(fan_outs_by_layer(self.name, self.fanout, model)) if f is not None)

    async def gather(self, rank: Rank, part: Part, model: GNN, seeds: Tensor) -> Stored:
        """The neighbourhoods of own nodes, given by local row, with in-degrees and features."""
        assert part.x is not None
        hops = self.hops(model)
        if rank.shapes_only:
            return Stored.unknown(part.x, len(hops))
        neighbours, tables = Neighbours.of(part), [part.graph.degree.to(torch.int32), part.x]
        return await Stored.gather(rank, neighbours, neighbours.own(seeds), hops, tables)

    def reach(self, rank: Rank, model: GNN, stored: Stored, batch: Tensor, merge: bool) -> Reached:
        """The neighbourhoods of nodes, given by position, on the host; with shapes only by recorded rates."""
        rows, entries = list[int](), list[int]()
        if batch.is_meta:
            for hop, fanout in enumerate(self.hops(model)):
                reads = rows[-1] if rows else len(batch)
                entries.append(round(rank.rate("kept_edges", hop) * reads * (1 if fanout == EVERYTHING else fanout)))
                rows.append(round(rank.rate("kept_rows", hop) * entries[-1]) if merge else entries[-1])
        return reached(stored, batch, merge, rows, entries)

    def observe(self, rank: Rank, model: GNN, found: Reached) -> None:
        """Record, by hop, the entries of lists (of nodes x fan-out, or of nodes) and the new rows (of entries)."""
        if found.nodes.is_meta:
            return
        begin = 0
        for hop, fanout in enumerate(self.hops(model)):
            end, after = found.ends[hop], found.ends[hop + 1]
            entries = int(found.indptr[end] - found.indptr[begin])
            rank.observe("kept_edges", entries, (end - begin) * (1 if fanout == EVERYTHING else fanout), hop)
            rank.observe("kept_rows", after - end, entries, hop)
            begin = end

    def batch_of(
        self, rank: Rank, part: Part, model: GNN, state: StoredState, batch: Tensor, found: Reached, prune: bool
    ) -> SampledBatch:
        """The layers, rows and labels of a batch. Pruned, a layer computes only what later layers read."""
        assert part.y is not None
        stored, nodes = state.stored, found.nodes.to(rank.device)
        names = part.nodes.new_empty(len(nodes)) if nodes.is_meta else node_of(stored.ids)[found.nodes].to(rank.device)
        degree, x = (_selected(table, nodes) for table in stored.rows[:2])
        layers, inputs, hop = list[SampledLayer | None](), list[int](), 0
        for l in reversed(range(model.depth)):
            if not model.exchanges(l):
                layers.append(None)
                inputs.append(found.ends[hop if prune else -1])
                continue
            block = (found.block(hop) if prune else found.whole()).to(rank.device)
            aggregation = model.aggregation(l)
            weights = (None, None) if aggregation is None else self.weights(aggregation, block, degree, x)
            layers.append(SampledLayer(block, *weights))
            inputs.append(block.num_cols)
            hop += 1
        chosen = state.seeds.index_select(0, batch.to(rank.device))
        rows = None if prune else torch.arange(len(batch), device=rank.device)
        by_layer = tuple(names[:count] for count in reversed(inputs))
        return SampledBatch(tuple(reversed(layers)), by_layer, x, part.y.index_select(0, chosen), rows=rows)

    @abstractmethod
    def weights(
        self, aggregation: Aggregation, block: Block, degree: Tensor, x: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The weights of a layer's edges and own rows; `degree` is that of all rows of the batch."""

    async def forward(
        self, rank: Rank, part: Part, model: GNN, state: StoredState, memory: Memory, tape: Tape
    ) -> Tensor:
        """Logits of the training nodes, all in one batch; zero for other own nodes, of which nothing is kept."""
        every = torch.arange(len(state.seeds), device=state.stored.ids.device)
        batch = await self.draw(rank, part, model, state, memory, every, 0)
        logits = self.logits(rank, model, batch, 0)[: len(state.seeds)]
        return logits.new_zeros(len(part.nodes), logits.shape[1]).index_copy(0, state.seeds, logits)

    def measures(self, part: Part, model: GNN, state: StoredState) -> dict[str, float]:
        """Bytes of this rank's requests at the set-up and of their replies, and of the kept rows and lists."""
        if part.nodes.is_meta:
            return {}
        kept = [state.stored.ids, state.stored.indptr, state.stored.columns, *state.stored.rows]
        return {
            "prepared_bytes": float(state.stored.asked),
            "kept_bytes": float(sum(t.numel() * t.element_size() for t in kept)),
        }

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The all-reduces alone."""
        return self.reduce_bytes(model, ranks)


def _selected(table: Tensor, nodes: Tensor) -> Tensor:
    """Rows of a table, which is empty with shapes only."""
    return table.new_empty(len(nodes), *table.shape[1:]) if nodes.is_meta else table.index_select(0, nodes)

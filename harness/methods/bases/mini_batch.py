"""Training by sampled mini-batches on the parts of an edge cut: what all sampling methods share.

Subclasses choose the nodes of a step and draw the layers that compute them (`draw`); the rest is here: how many steps
an epoch has, the forward pass over weighted layers, and one optimizer step per batch with one all-reduce.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.effects import Counts, Rows
from harness.errors import InputError
from harness.exchanges import Memory
from harness.graphs import Part, Totals
from harness.methods.bases.base import Method, Seen, WireBytes, flat_gradients, set_gradients
from harness.nn import GNN, summed_loss
from harness.rank import Rank
from harness.sampling import EVERYTHING, Neighbours, SampledBatch, SampledLayer, no_edges
from harness.tape import Tape


@dataclass(frozen=True, eq=False)
class BatchState:
    """The result of `setup`.

    Attributes:
        neighbours: lists and rows of any node, by address.
        seeds: int64 [n], addresses of the nodes that this rank trains on, on the host.
        steps: of an epoch, the same on every rank.
        degree: int32 [n_own] full in-degrees, on the rank's device.
        layer0: "exchange": features of remote nodes are fetched in every step.
    """

    neighbours: Neighbours
    seeds: Tensor
    steps: int
    degree: Tensor
    layer0: str = "exchange"


@dataclass(frozen=True, kw_only=True)
class Batched(Method):
    """One optimizer step per batch, data-parallel, whatever a batch is.

    The state that `setup` returns has the number of `steps` of an epoch. A subclass defines `batches` and `draw`.
    """

    @abstractmethod
    def batches(self, rank: Rank, state: Any) -> list[Tensor]:
        """What is drawn in every step of an epoch, as many as every other rank has."""

    @abstractmethod
    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, seeds: Tensor, step: int
    ) -> SampledBatch:
        """The layers, inputs and labels of one step, for what `batches` returned for it, perhaps nothing.

        All ranks call it together, so its exchanges must not depend on the seeds. With shapes only sizes follow
        recorded rates. In a `MiniBatch` seeds are addresses, on the host.
        """

    def aggregate(self, l: int, model: GNN, batch: SampledBatch, layer: SampledLayer, rows: Tensor) -> Tensor:
        """z of layer l from the messages of its sources."""
        return layer.aggregate(rows)

    def logits(self, rank: Rank, model: GNN, batch: SampledBatch, step: int) -> Tensor:
        """Rows of the last layer, [n, classes]; dropout is keyed by node, layer and step."""
        h = batch.x
        for l, layer in enumerate(batch.layers):
            if l == 0 and batch.z0 is not None:
                h = first_layer(rank, model, batch, step)
                continue
            h = model.drop(h, batch.nodes[l], rank.key(f"dropout/{step}", l, per_rank=False))
            if layer is None:
                h = model.update(l, no_edges(h), h, h, h[:0])
                continue
            message, count = model.message(l, h), layer.block.num_rows
            if layer.weight is None:
                graph = layer.graph()
                graph = graph.with_self_loops() if model.self_loops else graph
                h = model.update(l, graph, h[:count], message[:count], message[count:])
            else:
                z = self.aggregate(l, model, batch, layer, message)
                h = model.combine(l, h[:count], z, transformed=model.linear_first(l))
        return h

    async def epoch(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, optimizer: torch.optim.Optimizer
    ) -> Tensor:
        """One optimizer step per batch; returns the mean loss of what was trained, times all training nodes."""
        trained = torch.zeros(2, device=part.nodes.device)
        for step, seeds in enumerate(self.batches(rank, state)):
            with rank.span("sample"):
                batch = await self.draw(rank, part, model, state, memory, seeds, step)
            loss = batch.x.new_zeros(())
            if len(batch.y):
                loss = await Tape(rank, model.parameters()).backward(
                    _loss(self.logits(rank, model, batch, step), batch, part.totals)
                )
            trained = trained + await _reduce(rank, model, loss, len(batch.y) if batch.count is None else batch.count)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            await self.after_step(rank, part, model, state, memory, batch)
        return trained[0] / trained[1].clamp(min=1) * part.totals.num_train

    async def after_step(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, batch: SampledBatch
    ) -> None:
        """What follows an optimizer step; nothing by default."""

    def reduce_bytes(self, model: GNN, ranks: Sequence[Seen]) -> WireBytes:
        """Bytes over all ranks of an epoch's all-reduces: 8 (P - 1) (parameters + 2) each."""
        steps, values = ranks[0].state.steps, sum(p.numel() for p in model.parameters()) + 2
        return {"forward": {}, "backward": {}, "other": {}, "reduce": {-1: 8 * (len(ranks) - 1) * values * steps}}


@dataclass(frozen=True, kw_only=True)
class MiniBatch(Batched):
    """Base of the methods that train on sampled batches, data-parallel over the parts of an edge cut.

    In every step each rank draws a batch of its own training nodes and the layers that compute them, asks owners for
    what it lacks, runs the model on it, and steps with gradients summed over ranks, divided by the number of nodes
    trained on all ranks. No hidden row and no gradient of a row crosses ranks. An epoch has as many steps as the rank
    with most batches needs; the others go on with empty ones, so that all take part in every exchange. On one rank
    nothing is sent. Evaluation is full-graph and exact.

    A subclass defines `draw`. It may override `deal` (which nodes a rank trains on), `batches` (how an epoch cuts them)
    and `aggregate` (how a layer sums its sources), and states its bytes with `reduce_bytes`.

    Options:
        batch: training nodes of a rank in a step; 0 for all of them, one step an epoch.
    """

    batch: int = 1000

    def validate(self) -> None:
        if self.batch < 0:
            raise InputError(f"{self.name}: batch must be 0 (all training nodes) or more, not {self.batch}")

    async def setup(self, rank: Rank, part: Part, model: GNN) -> BatchState:
        """Build the lists, deal the training nodes, agree on the steps of an epoch."""
        self.validate()
        self.check(model, part.totals, part.num_parts)
        neighbours = self.neighbours(part)
        seeds = await self.deal(rank, part, neighbours)
        most = int((await announce(rank, len(seeds), label="training nodes")).max(initial=0))
        degree = part.graph.degree.to(torch.int32)
        return BatchState(neighbours, seeds, self.steps(most), degree)

    def treats_input(self, model: GNN) -> str | None:
        """Features of other ranks' nodes are fetched in every step."""
        return "exchange"

    def steps(self, most: int) -> int:
        """Steps of an epoch where the rank with most training nodes has that many; at least one."""
        return max(-(-most // (self.batch or max(most, 1))), 1)

    def neighbours(self, part: Part) -> Neighbours:
        """The lists of this rank, and how ranks send them to each other."""
        return Neighbours.of(part)

    async def deal(self, rank: Rank, part: Part, neighbours: Neighbours) -> Tensor:
        """Addresses of the nodes that this rank trains on: its own."""
        return neighbours.own(part.train)

    def batches(self, rank: Rank, state: BatchState) -> list[Tensor]:
        """The seeds of every step of an epoch, in random order, `batch` at a time; empty ones at the end."""
        seeds = state.seeds
        if not seeds.is_meta:
            seeds = seeds[torch.from_numpy(rank.generator("batches").permutation(len(seeds)))]
        cut = list(seeds.split(self.batch or max(len(seeds), 1)))
        return cut + [seeds[:0]] * (state.steps - len(cut))

    async def forward(self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, tape: Tape) -> Tensor:
        """Logits of the own nodes, all in one batch with the draws of step 0: what an estimate is checked by."""
        own = torch.arange(len(part.nodes), device=part.nodes.device)
        batch = await self.draw(rank, part, model, state, memory, state.neighbours.own(own), 0)
        return self.logits(rank, model, batch, 0)


def total_observed(ranks: Sequence[Seen], name: str) -> int:
    """What all ranks observed under a name in an epoch, for byte formulas: the first numbers of `Rank.observe`."""
    return sum(int(seen.observed.get(name, [0])[0]) for seen in ranks)


async def precompute_input(rank: Rank, part: Part, model: GNN) -> Tensor:
    """The aggregated input features of own nodes, [n_own, F], from all neighbours; halo features travel once.

    Raises InputError where the first layer's aggregation is not linear in rows.
    """
    aggregation, plan = model.aggregation(0), part.plan
    if aggregation is None:
        raise InputError("a precomputed input layer needs linear aggregation (gcn, sage)")
    assert part.x is not None
    rows = part.x.index_select(0, plan.send_rows)
    received = await rank.all_to_all([Rows(rows, plan.send_counts, plan.recv_counts)], label="features")
    return aggregation.forward(part.graph, part.x, received.tensors[0])


def first_layer(rank: Rank, model: GNN, batch: SampledBatch, step: int) -> Tensor:
    """Rows after the first layer, of a batch that has them aggregated."""
    assert batch.z0 is not None
    z0 = model.drop(batch.z0, batch.nodes[0], rank.key(f"dropout/z/{step}", 0, per_rank=False))
    own = model.drop(batch.x, batch.nodes[0], rank.key(f"dropout/{step}", 0, per_rank=False))
    return model.combine(0, own if model.reads_own(0) else batch.x, z0, transformed=False)


def fan_outs(name: str, text: str) -> tuple[int, ...]:
    """The numbers of a `fanout` option, seeds first. Raises InputError, with the method's name, for anything else."""
    words = text.split("/")
    if not all(word == "full" or (word.isdecimal() and int(word) > 0) for word in words):
        raise InputError(f"{name}: fanout is positive numbers or full, seeds first, such as 10 or 25/10, not {text!r}")
    return tuple(EVERYTHING if word == "full" else int(word) for word in words)


def fan_outs_by_layer(name: str, text: str, model: GNN) -> tuple[int | None, ...]:
    """A fan-out for every layer of the model, the input's first; None for layers that read no neighbours.

    One number is every layer's. Raises InputError where there are as many as neither.
    """
    readers, numbers = sum(model.exchanges(l) for l in range(model.depth)), fan_outs(name, text)
    if len(numbers) not in (1, readers):
        raise InputError(f"{name}: fanout={text} is for {len(numbers)} layers, the model has {readers} that read any")
    left = iter((numbers * readers)[:readers][::-1])
    return tuple(next(left) if model.exchanges(l) else None for l in range(model.depth))


async def announce(rank: Rank, count: int, *, label: str) -> Counts:
    """The number that every rank gives, int64 [size], also where tensors have shapes only. 8 bytes for every pair."""
    rows = torch.empty(count * rank.size, 0, device=rank.device)  # rows of no bytes, whose number is sent
    received = await rank.all_to_all([Rows(rows, np.full(rank.size, count, np.int64), None)], label=label)
    counts: Counts = received.counts[0]
    return counts


def _loss(logits: Tensor, batch: SampledBatch, totals: Totals) -> Tensor:
    rows = logits if batch.rows is None else logits.index_select(0, batch.rows)
    return summed_loss(rows, batch.y, totals.multilabel, batch.weight)


async def _reduce(rank: Rank, model: GNN, loss: Tensor, count: float) -> Tensor:
    """Sum gradients, loss and count over ranks and divide the gradients by the count; returns (loss, count)."""
    parameters = list(model.parameters())
    flat = flat_gradients(parameters, loss, loss.new_full((1,), count))
    flat = await rank.all_reduce(flat, label="gradients")
    set_gradients(parameters, flat[:-2] / flat[-1].clamp(min=1))
    sums: Tensor = flat[-2:]
    return sums

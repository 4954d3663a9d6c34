"""Subgraph approximation: overlapping parts, local training, parameters averaged once per epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from harness.errors import InputError
from harness.exchanges import LayerExchange, Memory
from harness.graphs import Part, Totals
from harness.methods.bases.base import Facts, Seen, WireBytes
from harness.methods.bases.edge_cut import EdgeCut, EdgeCutState
from harness.nn import GNN, training_loss
from harness.partition.overlap import check_overlap
from harness.rank import Rank
from harness.sampling import NeighbourSampler, batch_logits, batch_part, batches
from harness.tape import Tape

MASTER = 0


@dataclass(frozen=True, eq=False)
class SubgraphState(EdgeCutState):
    """The part's subgraph in the model's form, and the sampler of its mini-batches."""

    sampler: NeighbourSampler | None


@dataclass(frozen=True, kw_only=True)
class SubgraphApproximation(EdgeCut):
    """Local training on overlapping parts (Alg. 1) with one parameter average per epoch (Sec. 3.2).

    Every rank holds its own nodes, copies of near foreign nodes and all edges among them (chosen once, before
    training: `harness.partition.overlap`), and trains on them as if they were the whole graph, with its own Adam
    state. Gradients are those of the mean loss over a rank's training nodes, or over those of a batch. At the end of
    an epoch rank 0 takes the plain mean of all workers' parameters and sends it back; workers without training nodes
    take no step but count in the mean. Evaluation is exact, on the whole graph.

    Bytes per epoch: 4 (parameters + 1) from every rank but 0 to rank 0, as many back, all booked as reduce; the one
    value more is the loss. No vertex rows travel.

    In brief:
        travels: parameters after every epoch, to rank 0 and back; no rows of nodes
        bytes: 8 (P - 1) (parameters + 1) an epoch, over all ranks
        memory: own nodes and up to `overlap` copies for each of them, with features, and the edges among them

    Options:
        overlap: copies a part may hold per own node, O of Alg. 1; the tables' overhead is O / parts. 0 isolates.
        batch: training nodes per local step; 0 is one step an epoch on all of them. The paper's GraphSAGE: 256.
        fanouts: neighbours drawn per node, one number for each layer, input layer first; used with batch. The paper
            gives none: these are GraphSAGE's.
        degrees: what normalises full-batch layers: degrees in the part's subgraph, or in the full graph.
        loss: training nodes that carry loss: a part's own, or its copies too. The paper does not say; its epochs in a
            fixed time, 80 / (1 + O) (Table 4), and "trains on its assigned subgraph" (Sec. 3.2) favour all.
        master: worker is rank 0 itself, which trains too; apart keeps rank 0 free of nodes and copies, so that P - 1
            ranks train on as many parts (Sec. 3.2 has a master, and workers that train).
    """

    overlap: float = 0.1
    batch: int = 0
    fanouts: str = "25/10"
    degrees: Literal["local", "full"] = "local"
    loss: Literal["own", "all"] = "own"
    master: Literal["worker", "apart"] = "worker"

    name = "subgraph-approximation"
    facts = Facts(
        cut="overlap", exact=False, lossy=True, vanishes_with={"overlap": 1000.0, "batch": 0, "loss": "all"},
        paper="Subgraph approximation, Alg. 1, Sec. 3.2",
    )  # fmt: skip

    def promises(self) -> Facts:
        """Without copies no worker sees anything of another part."""
        return replace(super().promises(), isolated=self.overlap == 0.0)

    def validate(self) -> None:
        check_overlap(self.overlap)
        if self.batch < 0:
            raise InputError(f"subgraph-approximation: batch must be 0 (all training nodes) or more, not {self.batch}")
        if self.batch and (self.degrees == "full" or self.layer0 in ("precompute", "exchange")):
            what = "degrees=full" if self.degrees == "full" else f"layer0={self.layer0}"
            raise InputError(f"subgraph-approximation: mini-batches sample neighbours anew; {what} needs batch=0")
        self._fanouts()

    def idle(self) -> dict[str, str]:
        return {} if self.batch else {"fanouts": "batch=0"}

    def _fanouts(self) -> tuple[int, ...]:
        try:
            fanouts = tuple(int(number) for number in self.fanouts.split("/"))
        except ValueError:
            fanouts = (0,)
        if min(fanouts) < 1:
            raise InputError(f"subgraph-approximation: fanouts are numbers from 1 on, like 25/10, not {self.fanouts!r}")
        return fanouts

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if self.master == "apart" and num_parts == 1:
            raise InputError("subgraph-approximation: a master apart from the workers needs a second rank")
        if not self.batch:
            return
        readers = [l for l in range(model.depth) if model.exchanges(l)]
        if len(self._fanouts()) != len(readers):
            raise InputError(
                f"subgraph-approximation: fanouts={self.fanouts} is for {len(self._fanouts())} layers, the model has "
                f"{len(readers)} that read neighbours"
            )
        for l in readers:
            aggregation = model.aggregation(l)
            if aggregation is not None and aggregation.kind != "mean":
                raise InputError("subgraph-approximation: a gcn sum cannot be sampled; use sage or gat, or batch=0")

    def treats_input(self, model: GNN) -> str:
        """Mini-batches cannot precompute an input layer."""
        return "cache" if self.batch else super().treats_input(model)

    def part_settings(self) -> dict[str, Any]:
        return {"overlap": self.overlap, "degrees": self.degrees, "loss": self.loss, "master": self.master}

    async def setup(self, rank: Rank, part: Part, model: GNN) -> SubgraphState:
        if self.master == "apart" and rank.size > 1 and rank.index == MASTER and len(part.nodes):
            raise InputError(
                "subgraph-approximation: rank 0 holds nodes in a graph known by counts only; use master=worker"
            )
        method = replace(self, layer0="cache") if self.batch else self  # as `treats_input`
        state = await super(SubgraphApproximation, method).setup(rank, part, model)
        sampler = NeighbourSampler.of(part, model, self._fanouts()) if self.batch else None
        return SubgraphState(state.graph, state.route, state.layer0, state.halo_x, state.z0, sampler)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """Parameters and the loss to rank 0 and back."""
        values = sum(p.numel() for p in model.parameters()) + 1
        return {"reduce": {-1: 2 * 4 * (len(ranks) - 1) * values}}

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange | None:
        """None: the halo is empty."""
        return None

    async def epoch(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, optimizer: torch.optim.Optimizer
    ) -> Tensor:
        loss = torch.zeros((), device=part.train.device)
        if state.sampler is not None:
            for step, batch in enumerate(batches(rank, part, self.batch)):
                with rank.span("sample"):
                    drawn = state.sampler.sample(rank, batch, step)
                logits = batch_logits(rank, model, part, drawn, step)
                loss = loss + await _step(rank, model, optimizer, logits, batch_part(part, batch))
        elif part.train.shape[0]:
            logits = await self.forward(rank, part, model, state, memory, Tape(rank))
            loss = await _step(rank, model, optimizer, logits, part)
        return await _average(rank, model, loss, self.master == "apart")


async def _step(rank: Rank, model: GNN, optimizer: torch.optim.Optimizer, logits: Tensor, part: Part) -> Tensor:
    """One local step on the mean loss over the part's training rows; returns the summed loss, detached."""
    optimizer.zero_grad(set_to_none=True)
    count = part.train.shape[0]
    mean = await Tape(rank, model.parameters()).backward(training_loss(logits, part) / count)
    optimizer.step()
    return mean * count


async def _average(rank: Rank, model: GNN, loss: Tensor, apart: bool) -> Tensor:
    """Replace all ranks' parameters by the workers' mean, through rank 0; returns the loss summed over ranks.

    `apart`: the master is no worker.
    """
    if rank.size == 1:
        return loss
    parameters = list(model.parameters())
    flat = torch.cat([*[p.detach().reshape(-1) for p in parameters], loss.reshape(1)])
    if rank.index == MASTER:
        if apart:
            flat = torch.zeros_like(flat)
        others = [r for r in range(rank.size) if r != MASTER]
        like = torch.empty_like(flat)
        handles = [await rank.start(rank.recv(like, source=r, label="parameters", direction="reduce")) for r in others]
        for handle in handles:  # added in rank order
            flat = flat + await rank.wait(handle)
        flat = torch.cat([flat[:-1] / (rank.size - apart), flat[-1:]])
    else:
        await rank.send(flat, to=MASTER, label="parameters", direction="reduce")
    flat = await rank.broadcast(flat, root=MASTER, label="average", direction="reduce")
    with torch.no_grad():
        for parameter, piece in zip(parameters, flat[:-1].split([p.numel() for p in parameters]), strict=True):
            parameter.copy_(piece.view_as(parameter))
    total: Tensor = flat[-1]
    return total

"""The rank program that every driver runs: set up, train epoch by epoch, evaluate off the clock, record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from harness.halo import Part, Totals
from harness.loss import counts
from harness.methods.base import Method
from harness.methods.edge_cut import EdgeCutState
from harness.methods.vanilla import Vanilla
from harness.models import GNN, build_model
from harness.rank import Rank
from harness.results import RankEpoch, RankResult
from harness.spec import RunConfig
from harness.tape import Tape
from harness.workloads.rates import Rates

Progress = Callable[[RankEpoch], None]


class PartSource(Protocol):
    """Where a rank gets its part of the graph."""

    @property
    def totals(self) -> Totals:
        """Counts of the graph trained on."""
        ...

    def training(self, rank: int) -> Any:
        """The part trained on."""
        ...

    def evaluation(self, rank: int) -> Any:
        """The part evaluated on; the training part itself where the protocol is transductive."""
        ...


@dataclass(frozen=True)
class Job:
    """One run as every rank gets it."""

    config: RunConfig
    method: Method
    parts: PartSource
    progress: Progress | None = None  # called on rank 0 after every epoch
    rates: Rates | None = None  # what a recorded run observed, for runs that follow shapes only


def program(job: Job) -> Callable[[Rank], Any]:
    """The rank program of a job."""

    async def run(rank: Rank) -> RankResult:
        return await train(rank, job)

    return run


async def train(rank: Rank, job: Job) -> RankResult:
    """Train on one rank; answers what it recorded."""
    config = job.config
    part = job.parts.training(rank.index)
    part = part.shapes_only() if rank.shapes_only else part.to(rank.device)
    model = build_model(config, part.totals.num_features, part.totals.num_classes).to(rank.device)
    method = job.method
    rank.epoch = -1
    if job.rates is not None:
        rank.rates = job.rates.values
    with rank.off_the_clock():
        state = await method.setup(rank, part, model)
        memory = method.remember(rank, part, model, state)
        optimizer = method.optimizer(rank, model, config.lr, config.weight_decay)
        judge = await _Judge.create(rank, job, part, model, state)
    records = []
    for epoch in range(config.epochs):
        rank.epoch = epoch
        rank.traffic.take()
        rank.clock.begin_epoch()
        model.train()
        loss = await method.epoch(rank, part, model, state, memory, optimizer)
        seconds = rank.clock.end_epoch()
        record = _record(rank, epoch, loss, part, seconds)
        if judge is not None and _due(epoch, config):
            with rank.off_the_clock():
                record.counts = await judge.judge(rank, model)
        records.append(record)
        if job.progress is not None and rank.index == 0:
            job.progress(record)
        if record.loss is not None and not math.isfinite(record.loss):
            break
    with rank.off_the_clock():
        await method.settle(rank, memory)
    facts = {
        "layer0": getattr(state, "layer0", None),
        "cut": method.facts.cut,
        **(job.rates.facts() if job.rates else {}),
    }
    return RankResult(rank.index, records, facts, method.measures(part, model, state))


def _record(rank: Rank, epoch: int, loss: torch.Tensor, part: Part, seconds: dict[str, float]) -> RankEpoch:
    traffic = rank.traffic.take()
    value = None if loss.is_meta else float(loss) / max(part.totals.num_train, 1)
    layers = {direction: dict(found) for direction, found in traffic.layers.items()}
    memory, observed = rank.clock.peak_memory(), rank.take_observed()
    return RankEpoch(epoch, value, seconds, layers, traffic.to.tolist(), None, memory, observed)


def _due(epoch: int, config: RunConfig) -> bool:
    last = epoch == config.epochs - 1
    return last or (config.eval_every > 0 and (epoch + 1) % config.eval_every == 0)


@dataclass
class _Judge:
    """Evaluates with every boundary row exact and dropout off, whatever the method trains with.

    Overlapping parts are not evaluated on: their copies of nodes would count twice.
    """

    part: Part
    method: Method
    state: Any

    @classmethod
    async def create(cls, rank: Rank, job: Job, part: Part, model: GNN, state: Any) -> _Judge | None:
        if rank.shapes_only or job.config.eval_every < 0:
            return None
        method = job.method.exact() or Vanilla(layer0="auto")
        if job.config.protocol == "transductive" and job.method.facts.cut != "overlap":
            if isinstance(state, EdgeCutState) and (state.z0 is not None or state.halo_x is not None):
                return cls(part, method, state)
            return cls(part, method, await method.setup(rank, part, model))
        whole = job.parts.evaluation(rank.index).to(rank.device)
        return cls(whole, method, await method.setup(rank, whole, model))

    async def judge(self, rank: Rank, model: GNN) -> list[list[float]]:
        """Counts of train, val and test over all ranks."""
        model.eval()
        with torch.no_grad():
            memory = self.method.remember(rank, self.part, model, self.state)
            logits = await self.method.forward(rank, self.part, model, self.state, memory, Tape(rank))
        table = await rank.all_reduce(counts(logits, self.part), label="evaluation", direction="other")
        return [[float(v) for v in row] for row in table]

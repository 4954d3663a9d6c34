"""The rank program that every driver runs: set up, train epoch by epoch, evaluate off the clock, record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from harness import evaluation
from harness.halo import Part, Totals
from harness.methods.base import Method
from harness.models import build_model
from harness.rank import Rank
from harness.results import RankEpoch, RankResult
from harness.spec import RunConfig
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
    spare: evaluation.Spare | None = None  # rank 0's process that evaluates, where the config asks for one


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
    with rank.off_the_clock("set-up"):
        state = await method.setup(rank, part, model)
        memory = method.remember(rank, part, model, state)
        optimizer = method.optimizer(rank, model, config.lr, config.weight_decay)
        judge = await evaluation.prepare(rank, job, part, model, state)
    records = []
    for epoch in range(config.epochs):
        rank.epoch = epoch
        rank.traffic.take()
        rank.clock.begin_epoch()
        model.train()
        loss = await method.epoch(rank, part, model, state, memory, optimizer)
        seconds = rank.clock.end_epoch()
        record = _record(rank, epoch, loss, part, seconds)
        if judge is not None and evaluation.due(epoch, config):
            with rank.off_the_clock("evaluation"):
                record.counts = await judge.judge(rank, model)
        records.append(record)
        if job.progress is not None and rank.index == 0:
            job.progress(record)
        if record.loss is not None and not math.isfinite(record.loss):
            break
    with rank.off_the_clock("the last steps"):
        await method.settle(rank, memory)
        if judge is not None:
            await judge.settle(rank, records)
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

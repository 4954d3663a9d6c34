"""The rank program that every driver runs: set up, train epoch by epoch, evaluate off the clock, record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from harness.graphs import Part
from harness.kernels.uncompiled import without_compiler
from harness.methods.bases.base import Method
from harness.nn import GNN, build_model, copy_on_meta
from harness.rank import Rank
from harness.running import _evaluation as evaluation
from harness.running._checkpoint import Carried, Saver, saver_of
from harness.running._job import Job
from harness.running.results import RankEpoch, RankResult


def program(job: Job) -> Callable[[Rank], Any]:
    """The rank program of a job."""

    async def run(rank: Rank) -> RankResult:
        return await train(rank, job)

    return run


async def train(rank: Rank, job: Job) -> RankResult:
    """Train on one rank, from a checkpoint if there is one; returns its records."""
    saver = saver_of(rank, job)
    try:
        return await _train(rank, job, saver)
    finally:
        if saver is not None:
            saver.close()


async def _train(rank: Rank, job: Job, saver: Saver | None) -> RankResult:
    config, method = job.config, job.method
    rank.epoch = -1
    if job.rates is not None:
        rank.rates = job.rates.values
    with rank.off_the_clock("set-up"):
        run = await _set_up(rank, job, saver)
    carried, part, stopped = run.carried, run.part, False
    records, model = carried.records, run.model
    for epoch in range(len(records), config.training.epochs):
        rank.epoch = epoch
        rank.traffic.take()
        rank.clock.begin_epoch()
        model.train()
        compute = partial(method.epoch, rank, part, model, run.state, carried.memory, carried.optimizer)
        loss = await (compute() if job.epochs is None else job.epochs.epoch(rank, compute))
        seconds = rank.clock.end_epoch()
        record = _record(rank, epoch, loss, part, seconds, records[-1] if records else None)
        del loss  # the last element of all gradients, which it would keep in memory
        if run.judge is not None and evaluation.due(epoch, config):
            with rank.off_the_clock("evaluation"):
                record.counts = await run.judge.judge(rank, model)
        records.append(record)
        if job.keep is not None:
            job.keep(rank.index, record)
        if job.progress is not None and rank.index == 0:
            job.progress(record)
        if record.loss is not None and not math.isfinite(record.loss):
            break
        if run.saver is not None:
            with rank.off_the_clock("checkpoint"):
                stopped = await _keep(rank, method, run, run.saver)
            if stopped:
                break
    with rank.off_the_clock("the last steps"):
        await _settle(rank, method, run)
    missing = run.judge.missing if isinstance(run.judge, evaluation.SpareJudge) else []
    facts = {
        "layer0": method.treats_input(model),
        "orders": method.orders(model),
        "cut": method.facts.cut,
        **(job.rates.facts() if job.rates else {}),
        **(run.saver.facts() if run.saver else {}),
        **({"not_evaluated": missing} if missing else {}),
    }
    measures = method.measures(part, model, run.state)
    return RankResult(rank.index, records, facts, measures, stopped and len(records) < config.training.epochs)


@dataclass
class _Run:
    """The objects of one rank's training; only `carried` is saved in checkpoints."""

    part: Any
    model: GNN
    state: Any
    judge: evaluation.Judge | evaluation.SpareJudge | None
    saver: Saver | None
    carried: Carried


async def _set_up(rank: Rank, job: Job, saver: Saver | None) -> _Run:
    """Part, model and method, before the first epoch or as restored from a checkpoint."""
    without_compiler()
    config, method = job.config, job.method
    part = job.parts.training(rank.index)
    part = part.shapes_only() if rank.shapes_only else part.to(rank.device)
    totals, seed = part.totals, config.training.seed
    if rank.shapes_only:
        model = copy_on_meta(job.model)
    else:
        model = build_model(config.model, totals.num_features, totals.num_classes, seed).to(rank.device)
    saved = await saver.load() if saver is not None else None
    if saved is not None:
        model.load_state_dict(saved.model)
    state = await method.setup(rank, part, model)
    memory = method.remember(rank, part, model, state)
    optimizer = method.optimizer(rank, model, config.training.lr, config.training.weight_decay)
    if saved is not None:
        memory = saved.memory
        optimizer.load_state_dict(saved.optimizer)
    judge = await evaluation.make_judge(rank, job, part, model, state)
    records = [] if saved is None else saved.records
    if job.keep is not None:
        for record in records:
            job.keep(rank.index, record)
    return _Run(part, model, state, judge, saver, Carried(model, optimizer, memory, records))


async def _keep(rank: Rank, method: Method, run: _Run, saver: Saver) -> bool:
    """Write a checkpoint if one is due or a stop was requested; returns whether a stop was requested."""
    stopped = await saver.stopping()
    if stopped or saver.due(len(run.carried.records)):
        await _settle(rank, method, run)
        await saver.save(run.carried)
    return stopped


async def _settle(rank: Rank, method: Method, run: _Run) -> None:
    """Wait for pending messages of the method and pending evaluations."""
    await method.settle(rank, run.carried.memory)
    if run.judge is not None:
        await run.judge.settle(rank, run.carried.records)


def _record(
    rank: Rank, epoch: int, loss: torch.Tensor, part: Part, seconds: dict[str, float], before: RankEpoch | None
) -> RankEpoch:
    """The record of an epoch; `before` is the one before, with which it shares what is equal."""
    traffic = rank.traffic.take()
    value = None if loss.is_meta else float(loss) / max(part.totals.num_train, 1)
    layers = {direction: dict(found) for direction, found in traffic.layers.items()}
    memory, observed = rank.clock.peak_memory(), rank.take_observed()
    others, to = dict(traffic.others), traffic.to.tobytes()
    if before is not None and before.to == to:
        to = before.to
    return RankEpoch(epoch, value, seconds, layers, to, None, memory, observed, others)

"""Config -> result: checks everything the user gave, prepares the data, hands the job to a driver, merges the ranks.

Drivers are found by name and imported only when asked for: `harness` never imports `sims` or `real`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import torch

from harness import loopback
from harness.config import RunConfig
from harness.errors import InputError
from harness.exchanges import Diverged
from harness.machine import core_count
from harness.methods.base import Method
from harness.methods.registry import parse_method
from harness.nn import MODELS, build_model
from harness.partition import PARTITIONERS
from harness.rank import Rank
from harness.running._job import Checkpoints, Job, Progress
from harness.running._prepare import Prepared, cutting_of, prepare
from harness.running._rates import load_rates
from harness.running._training import program
from harness.running.results import RankResult, Result, merge
from harness.workloads import is_workload, read_description

DRIVERS = {"loopback": "harness.running._runner", "sim": "sims.study._execute", "real": "real.launch._execute"}


@dataclass(frozen=True)
class Execution:
    """What a driver answers: the ranks' records, and between which ranks bytes cross which tier."""

    ranks: list[RankResult]
    tiers: list[str]
    tier_of: list[list[int]]  # [from][to] -> index into tiers
    facts: dict[str, Any] = field(default_factory=dict)
    out_of_memory: str = ""  # which ranks would not have fitted their device, and by how much


class Driver(Protocol):
    """The module a driver's name resolves to."""

    def check(self, config: RunConfig) -> None:
        """Raise InputError for what the driver cannot run, before any data is loaded."""
        ...

    def reads(self, config: RunConfig) -> dict[str, str]:
        """Name -> hash of what the driver reads beside the config and its data; raises InputError as `check`."""
        ...

    def execute(self, job: Job) -> Execution:
        """Run the job on all ranks."""
        ...


def make_job(
    config: RunConfig, progress: Progress | None = None, checkpoints: Checkpoints | None = None
) -> tuple[Job, Prepared]:
    """Check the config against the registries, then load and partition the graph (or find it in the cache).

    Raises:
        InputError: whatever the user can mend, before anything is written.
    """
    method = check_job(config)
    if checkpoints is not None and config.cluster.shapes_only:
        raise InputError("a run of shapes only has nothing to checkpoint: leave out --checkpoint or --shapes-only")
    rates = load_rates(Path(config.cluster.rates), config.training.method) if config.cluster.rates else None
    prepared = prepare(config)
    totals = prepared.totals
    model = build_model(config.model, totals.num_features, totals.num_classes, config.training.seed)
    method.check(model, prepared.totals, config.cut.parts)
    data = f"{prepared.graph['fingerprint']}/{prepared.train.path.name}" if checkpoints is not None else ""
    return Job(config, method, prepared, progress, rates, checkpoints=checkpoints, data=data), prepared


def check_job(config: RunConfig) -> Method:
    """The config's method, once the config is known to fit the registries; looks at no data.

    Raises:
        InputError: an unknown method, model or partitioner, or a combination that cannot run.
    """
    method = parse_method(config.training.method, layer0=config.training.layer0)
    if method.facts.cut == "none" and config.cut.parts != 1:
        raise InputError(
            f"method {method.name} runs on one rank: use --parts 1, or vanilla for {config.cut.parts} parts"
        )
    kind = cutting_of(config).kind
    if (method.facts.cut == "vertex") != (kind == "vertex"):
        fitting = ", ".join(name for name, known in PARTITIONERS.builtin.items() if known.cuts == "edge")
        raise InputError(f"method {method.name} cuts edges: use partitioner auto, or one of {fitting}")
    if config.model.name in MODELS.builtin:
        build_model(config.model, 1, 2, config.training.seed)
    if is_workload(config.data.dataset) and not config.cluster.shapes_only:
        raise InputError(f"{config.data.dataset} describes a graph by counts: use --mode sim --shapes-only")
    return method


def check_driver(config: RunConfig) -> None:
    """Raise InputError for what the config's driver cannot run: an unknown cluster, a device that is not there."""
    cast(Driver, import_module(DRIVERS[config.run.mode])).check(config)


def inputs(config: RunConfig) -> dict[str, str]:
    """Name -> hash of all that a run reads beside its config and its graph: a result of other inputs says nothing.

    The graph's own hash stands with the graph (`Prepared.graph`).

    Raises:
        InputError: a file that cannot be read, or is not what it should be.
    """
    return {**data_inputs(config), **cast(Driver, import_module(DRIVERS[config.run.mode])).reads(config)}


def data_inputs(config: RunConfig) -> dict[str, str]:
    """Those of `inputs` that every driver reads: recorded rates, a workload's description and exported partition."""
    named = {"rates": Path(config.cluster.rates)} if config.cluster.rates else {}
    if is_workload(config.data.dataset):
        named["workload"], description, _ = read_description(config.data.dataset)
        if description.parts.partition:
            named["partition"] = named["workload"].parent / description.parts.partition
    try:
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in named.items()}
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from None


def run(config: RunConfig, progress: Progress | None = None, checkpoints: Checkpoints | None = None) -> Result:
    """Run one config and answer its result; `progress` is called after every epoch with rank 0's record.

    Times and memory of a run that went on from a checkpoint are those of its pieces; everything else is as if it had
    never stopped.
    """
    check_driver(config)
    driver = cast(Driver, import_module(DRIVERS[config.run.mode]))
    read = inputs(config)  # before they are read: what changes meanwhile has it run again
    job, prepared = make_job(config, progress, checkpoints)
    try:
        execution = driver.execute(job)
    except Diverged as error:
        return Result(config, "diverged", [], prepared.describe(), message=str(error), inputs=read)
    return replace(finish(config, prepared, execution), inputs=read)


def finish(config: RunConfig, prepared: Prepared, execution: Execution) -> Result:
    """The result of what the ranks recorded."""
    epochs = merge(execution.ranks, config.model.layers, execution.tiers, execution.tier_of)
    losses = [e["loss"] for e in epochs if e["loss"] is not None]
    diverged = bool(losses) and not math.isfinite(losses[-1])
    if diverged:
        epochs[-1]["loss"] = None
    names = execution.ranks[0].measures
    measures = {name: [rank.measures[name] for rank in execution.ranks] for name in names}
    facts = {**execution.ranks[0].facts, **measures, **execution.facts}
    state, message = "done", ""
    if execution.out_of_memory:
        state, message = "out_of_memory", execution.out_of_memory
    elif diverged:
        state, message = "diverged", f"the loss of epoch {epochs[-1]['epoch']} is not finite"
    elif execution.ranks[0].interrupted:
        state, message = "interrupted", f"asked to stop after epoch {epochs[-1]['epoch']}, and left a checkpoint"
    return Result(config, state, epochs, prepared.describe(), facts, message)


def check(config: RunConfig) -> None:
    """The loopback driver runs everything."""


def reads(config: RunConfig) -> dict[str, str]:
    """The loopback driver reads nothing of its own."""
    return {}


def execute(job: Job) -> Execution:
    """The loopback driver: all ranks in this process, no clock."""
    config = job.config

    def make_rank(index: int) -> Rank:
        return Rank(index, config.cut.parts, seed=config.training.seed, deterministic=config.run.deterministic)

    with cpu_threads(threads_per_rank(config)):
        ranks = loopback.run_ranks(program(job), config.cut.parts, make_rank=make_rank)
    return Execution(ranks, ["memory"], [[0] * config.cut.parts] * config.cut.parts)


def threads_per_rank(config: RunConfig, ranks_on_host: int | None = None) -> int:
    """CPU threads of one rank. The same in every mode, because sums depend on it in the last bit."""
    return config.run.threads or max(1, core_count() // (ranks_on_host or config.cut.parts))


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Run with so many torch threads, then restore."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)

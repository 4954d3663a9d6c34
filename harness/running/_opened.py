"""A run opened: its method read, its cut decided and its driver set up, once, before any data is loaded.

Drivers are entry points, found by mode and loaded only when a run needs them: `harness` never imports `sims` or `real`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.config import RunConfig
from harness.errors import InputError
from harness.machine import GPU_KERNELS, used_code
from harness.methods.bases.base import Method
from harness.methods.registry import parse_method
from harness.nn import MODELS, build_model, model_factory
from harness.partition import PARTITIONERS, Cutting
from harness.registry import Registry
from harness.running import _loopback
from harness.running._job import Execution, Job
from harness.running._prepare import cutting_of
from harness.running._training import program
from harness.workloads import is_workload, read_description


class Driver(Protocol):
    """Where the ranks of one run are carried out; it holds what it has looked up for the run's config."""

    def check(self) -> None:
        """Raise InputError for what cannot run here and now, before any data is loaded."""
        ...

    def reads(self) -> dict[str, str]:
        """Name -> hash of what the run depends on beside its config and its data."""
        ...

    def execute(self, job: Job) -> Execution:
        """Run the job on all ranks."""
        ...


OpenDriver = Callable[[RunConfig], Driver]
"""Makes the driver of one run. Raises InputError for unknown names and counts that do not fit."""

DRIVERS: Registry[OpenDriver] = Registry("mode", "haloscope.drivers", {"loopback": _loopback.open_driver})
"""Drivers by mode; `sims.study` and `real.launch` are entry points of this project's own package."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What a config says to do, wherever it is done."""

    config: RunConfig
    method: Method
    cut: Cutting


@dataclass(frozen=True, eq=False)
class OpenedRun:
    """A plan, and where it is carried out."""

    plan: Plan
    driver: Driver

    @property
    def config(self) -> RunConfig:
        """All settings."""
        return self.plan.config

    def inputs(self) -> dict[str, str]:
        """Name -> hash of all that the run reads beside its config and its graph.

        A result of other inputs says nothing. The graph's own hash stands with the graph (`Prepared.graph`).

        Raises:
            InputError: a file that cannot be read, or is not what it should be.
        """
        return {**data_inputs(self.plan), **self.driver.reads()}


def plan_of(config: RunConfig) -> Plan:
    """The config's plan, once the config is known to fit the registries; looks at no data.

    Raises:
        InputError: an unknown method, model or partitioner, or a combination that cannot run.
    """
    method = parse_method(config.training.method, layer0=config.training.layer0)
    if method.facts.cut == "none" and config.cut.parts != 1:
        raise InputError(
            f"method {method.name} runs on one rank: use --parts 1, or vanilla for {config.cut.parts} parts"
        )
    if config.run.cuda_graphs and not method.promises().static:
        raise InputError(
            f"--cuda-graphs: epochs of {config.training.method} are not all the same operations on the same memory, so "
            "they cannot be recorded; leave the option out"
        )
    cut = cutting_of(config.cut, method)
    if (method.facts.cut == "vertex") != (cut.kind == "vertex"):
        fitting = ", ".join(name for name, known in PARTITIONERS.own().items() if known.cuts == "edge")
        raise InputError(f"method {method.name} cuts edges: use partitioner auto, or one of {fitting}")
    model_factory(config.model.name)
    if config.model.name in MODELS.builtin:  # models of other packages may need the widths of the data
        build_model(config.model, 1, 2, config.training.seed)
    if is_workload(config.data.dataset) and not config.cluster.shapes_only:
        raise InputError(f"{config.data.dataset} describes a graph by counts: use --mode sim --shapes-only")
    return Plan(config, method, cut)


def open_run(config: RunConfig) -> OpenedRun:
    """The run of a config, opened: nothing that it names is read or looked up again.

    Raises:
        InputError: as `plan_of`, and for what the driver cannot find.
    """
    driver = DRIVERS.find(config.run.mode)(config)
    return OpenedRun(plan_of(config), driver)


def data_inputs(plan: Plan) -> dict[str, str]:
    """Those of `OpenedRun.inputs` that every driver reads: the code of the method and of a model that is not built in,
    rates, a workload and its partition. The partitioner's code stands with the graph (`Prepared.made_of`)."""
    config, method = plan.config, plan.method
    kernels = () if config.run.device == "cuda" else GPU_KERNELS
    code = {"method": used_code(program, method, *method.plugins(), apart=kernels)}
    if config.model.name not in MODELS.builtin:
        code["model"] = used_code(model_factory(config.model.name))
    named = {"rates": Path(config.cluster.rates)} if config.cluster.rates else {}
    if is_workload(config.data.dataset):
        named["workload"], description, _ = read_description(config.data.dataset)
        if description.parts.partition:
            named["partition"] = named["workload"].parent / description.parts.partition
    try:
        return code | {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in named.items()}
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from None

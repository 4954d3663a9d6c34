"""Runs a job on the modelled cluster that its config names: connects `harness.running` with `sims.engine`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from harness.config import RunConfig
from harness.machine import HERE, kept_calibration, used_code
from harness.nn import build_model
from harness.running import Execution, Job, cpu_threads, program, threads_per_rank
from sims.cluster import Cluster, Placement, load_cluster, place
from sims.device import load_device
from sims.engine import Observer, Simulation, simulate
from sims.replay import Repeats, on_device
from sims.study import _remarks as remarks
from sims.study._variants import check_links
from sims.transport import LIBRARIES


@dataclass(frozen=True, eq=False)
class SimulatedCluster:
    """The driver of a modelled cluster, loaded and with its ranks placed.

    Attributes:
        observers: of the simulation.
        simulations: of every job that was executed.
    """

    placement: Placement
    observers: Sequence[Observer] = ()
    simulations: list[Simulation] = field(default_factory=list)

    @property
    def cluster(self) -> Cluster:
        """What the ranks are placed on."""
        return self.placement.cluster

    def check(self) -> None:
        """A cluster that was loaded, with all ranks placed, can be simulated."""

    def reads(self) -> dict[str, str]:
        """Hashes of all that is known of the cluster, with what the config changes, its devices and its library; and of
        the simulator's code with that of the library."""
        cluster = self.cluster
        names = list(dict.fromkeys(cluster.profiles))
        devices, order = [load_device(name) for name in names], [names.index(name) for name in cluster.profiles]
        library = LIBRARIES.find(cluster.transport.kind)
        known = [replace(cluster, profiles=()), devices, order, library.tuning()]  # wherever the device files lie
        return {
            "cluster": hashlib.sha256(msgspec.json.encode(known)).hexdigest(),
            "simulator": used_code(simulate, Repeats, library),
        }

    def execute(self, job: Job) -> Execution:
        """Run all ranks in this process, on modelled clocks."""
        job = _placed(job, self.placement)
        simulation, copied = _simulated(job, self.placement, self.observers)
        self.simulations.append(simulation)
        tiers, tier_of = self.placement.tier_matrix()
        facts = cluster_facts(simulation, self.placement, job.config)
        if copied is not None:
            facts["notes"].append(f"epochs from {copied} on repeat earlier ones, of which their seconds are copies")
        return Execution(simulation.results, list(tiers), tier_of, facts, simulation.too_large)


def open_driver(config: RunConfig) -> SimulatedCluster:
    """The cluster that a config names, with its ranks.

    Raises:
        InputError: an unknown cluster, a bad file, GPUs without a bus, or more ranks than it has devices.
    """
    cluster = load_cluster(config.cluster.name)
    check_links(cluster)
    return SimulatedCluster(place(cluster, config.cut.parts))


def _placed(job: Job, placement: Placement) -> Job:
    """The job of ranks that have their places."""
    config, totals = on_device(job.config, placement), job.parts.totals
    if config == job.config:
        return job
    model = build_model(config.model, totals.num_features, totals.num_classes, config.training.seed)
    return replace(job, config=config, model=model)


def _simulated(job: Job, placement: Placement, observers: Sequence[Observer]) -> tuple[Simulation, int | None]:
    """The simulation, and the first epoch that is a copy of an earlier one."""
    config = job.config
    repeats: list[Repeats] = []
    if config.cluster.shapes_only and job.method.epoch_kind(1) is not None:
        repeats = [Repeats(job.method, copying=not observers and not placement.cluster.stragglers.jitter)]
    with cpu_threads(threads_per_rank(config)):
        simulation = simulate(
            program(replace(job, epochs=repeats[0] if repeats else None)),
            placement,
            seed=config.training.seed,
            deterministic=config.run.deterministic,
            shapes_only=config.cluster.shapes_only,
            skew=job.parts.totals.skew,
            graphs=config.run.cuda_graphs,
            observers=[*repeats, *observers],
        )
    return simulation, min((epoch for each in repeats for rank in each.copies for epoch in rank), default=None)


def cluster_facts(simulation: Simulation, placement: Placement, config: RunConfig) -> dict[str, Any]:
    """What a result says of the cluster that it was simulated on."""
    cluster = placement.cluster
    sources, unknown = simulation.source_seconds, simulation.unknown_ops
    notes = remarks.notes(cluster, simulation, sources, unknown, config.model.precision)
    known = kept_calibration() if config.cluster.name.partition(":")[0] == HERE else None
    if known is not None and known.disturbed:
        notes.append(f"cluster {HERE}: {known.disturbed}; haloscope calibrate measures it again")
    if config.run.deterministic and config.cut.parts > 1:
        notes.append("all-reduce in rank order, as --mode real has it too; --no-deterministic: as the library does it")
    return {
        "cluster": cluster.name,
        "memory": asdict(simulation.fullest),
        "network": simulation.network,
        "tail_s": simulation.tail_s,
        "blocked_s": simulation.blocked_s,
        "compute_sources": remarks.source_shares(simulation.source_seconds),
        "notes": notes,
    }

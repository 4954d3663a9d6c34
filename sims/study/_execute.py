"""Runs a job on the modelled cluster that its config names: connects `harness.running` with `sims.engine`."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace

import msgspec

from harness.config import RunConfig
from harness.running import Execution, Job, cpu_threads, program, threads_per_rank
from sims.cluster import load_cluster, place
from sims.device import load_device
from sims.engine import Simulation, simulate
from sims.replay import Repeats
from sims.study import _remarks as remarks
from sims.transport import load_tuning


def check(config: RunConfig) -> None:
    """Raise InputError for an unknown cluster, a bad file, or more ranks than it has devices."""
    place(load_cluster(config.cluster.name), config.cut.parts)


def reads(config: RunConfig) -> dict[str, str]:
    """A hash of the cluster with the config's changes, its devices and its library."""
    cluster = load_cluster(config.cluster.name)
    names = list(dict.fromkeys(cluster.profiles))
    devices, order = [load_device(name) for name in names], [names.index(name) for name in cluster.profiles]
    library = load_tuning() if cluster.transport.kind == "nccl" else None
    known = [replace(cluster, profiles=()), devices, order, library]  # by content, not by the paths of device files
    return {"cluster": hashlib.sha256(msgspec.json.encode(known)).hexdigest()}


def execute(job: Job) -> Execution:
    """Run all ranks in this process, on modelled clocks.

    Raises:
        InputError: unknown cluster, or more ranks than it has devices.
    """
    config = job.config
    cluster = load_cluster(config.cluster.name)
    placement = place(cluster, config.cut.parts)
    repeats = Repeats() if config.cluster.shapes_only and job.method.facts.repeats else None
    with cpu_threads(threads_per_rank(config)):
        simulation = simulate(
            program(replace(job, epochs=repeats)),
            config.cut.parts,
            cluster=cluster,
            seed=config.training.seed,
            deterministic=config.run.deterministic,
            shapes_only=config.cluster.shapes_only,
            observers=[] if repeats is None else [repeats],
        )
    tiers, tier_of = placement.tier_matrix()
    notes = remarks.notes(cluster, simulation, simulation.source_seconds, simulation.unknown_ops)
    if config.run.deterministic and config.cut.parts > 1:
        notes.append("all-reduce in rank order, as --mode real has it too; --no-deterministic: as the library does it")
    facts = {
        "cluster": cluster.name,
        "memory": asdict(simulation.fullest),
        "network": simulation.network,
        "compute_sources": remarks.source_shares(simulation.source_seconds),
        "notes": notes,
    }
    return Execution(simulation.results, list(tiers), tier_of.tolist(), facts, _too_large(simulation))


def _too_large(simulation: Simulation) -> str:
    ranks = simulation.out_of_memory
    return f"{len(ranks)} ranks do not fit: {simulation.fullest}" if ranks else ""

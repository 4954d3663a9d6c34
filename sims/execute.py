"""Runs a job on the modelled cluster that its config names: the glue between `harness.runner` and `sims.driver`."""

from __future__ import annotations

from harness.runner import Execution, cpu_threads, threads_per_rank
from harness.spec import RunConfig
from harness.training import Job, program
from sims.device import load_device
from sims.driver import Simulation, simulate
from sims.topology import Cluster, load_cluster


def check(config: RunConfig) -> None:
    """Raise InputError for an unknown cluster, a bad file, or more ranks than it has devices."""
    load_cluster(config.cluster).place(config.parts)


def execute(job: Job) -> Execution:
    """All ranks in this process, on modelled clocks.

    Raises:
        InputError: unknown cluster, or more ranks than it has devices.
    """
    config = job.config
    cluster = load_cluster(config.cluster)
    placement = cluster.place(config.parts)
    with cpu_threads(threads_per_rank(config)):
        simulation = simulate(
            program(job),
            config.parts,
            cluster=cluster,
            seed=config.seed,
            deterministic=config.deterministic,
            shapes_only=config.shapes_only,
        )
    tiers, tier_of = placement.tier_matrix()
    facts = {"cluster": cluster.name, "notes": _notes(cluster, simulation.unknown_ops)}
    return Execution(simulation.results, list(tiers), tier_of.tolist(), facts, _too_large(simulation))


def _notes(cluster: Cluster, unknown_ops: dict[str, int]) -> list[str]:
    """What every table says of the model: how much of it was assumed, and what it could not price."""
    device = load_device(cluster.device)
    sources = [*(q.source for _, q in cluster.quantities()), *(q.source for _, _, q in device.quantities())]
    assumed, name = sources.count("assumed"), cluster.name
    notes = []
    if assumed:
        notes.append(f"cluster {name}: {assumed} of {len(sources)} values are assumed (haloscope clusters show {name})")
    if unknown_ops:
        calls = ", ".join(f"{op} x {count}" for op, count in sorted(unknown_ops.items()))
        notes.append(f"operators of unknown kind, priced by their bytes: {calls}")
    return notes


def _too_large(simulation: Simulation) -> str:
    ranks = simulation.out_of_memory
    if not ranks:
        return ""
    worst = max(ranks, key=lambda rank: simulation.peak_memory[rank])
    need, have = simulation.peak_memory[worst] / 1e9, simulation.memory / 1e9
    return f"{len(ranks)} ranks do not fit: rank {worst} needs {need:.3g} GB, its device has {have:.3g} GB"

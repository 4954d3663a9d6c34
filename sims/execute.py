"""Runs a job on the modelled cluster that its config names: the glue between `harness.runner` and `sims.driver`."""

from __future__ import annotations

from harness.runner import Execution, cpu_threads, threads_per_rank
from harness.training import Job, program
from sims.driver import simulate
from sims.topology import load_cluster


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
    return Execution(simulation.results, list(tiers), tier_of.tolist(), {"cluster": config.cluster})

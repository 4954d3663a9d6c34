"""The loopback driver: all ranks in this process, no clock."""

from __future__ import annotations

import numpy as np

from harness import loopback
from harness.config import RunConfig
from harness.rank import Rank
from harness.running._job import Execution, Job
from harness.running._threads import cpu_threads, threads_per_rank
from harness.running._training import program


class Loopback:
    """Runs everything, reads nothing of its own."""

    def check(self) -> None:
        """Nothing to refuse."""

    def reads(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def execute(self, job: Job) -> Execution:
        """All ranks, in turn."""
        parts, seed, run = job.config.cut.parts, job.config.training.seed, job.config.run

        def make_rank(index: int) -> Rank:
            return Rank(index, parts, seed=seed, deterministic=run.deterministic)

        with cpu_threads(threads_per_rank(job.config)):
            ranks = loopback.run_ranks(program(job), parts, make_rank=make_rank)
        return Execution(ranks, ["memory"], np.zeros((parts, parts), np.int8))


def open_driver(config: RunConfig) -> Loopback:
    """The driver of one run."""
    return Loopback()

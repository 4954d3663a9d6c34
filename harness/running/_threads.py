"""CPU threads of a rank's tensor operators: as many in every mode, because sums depend on them in the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.config import RunConfig
from harness.machine import core_count


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

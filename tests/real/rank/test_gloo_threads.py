"""gloo's own threads run under the policy for batch work, so that they do not interrupt the rank that sends."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]

from real.rank._channel import Channel, join_members
from real.rank._gloo_threads import gloo_threads, schedule_gloo_threads

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the policy for batch work is Linux's")


def policies() -> set[int]:
    """Of all threads of gloo in this process."""
    return {os.sched_getscheduler(thread) for thread in gloo_threads()}


def test_threads_of_a_joined_group_do_not_interrupt_the_rank() -> None:
    """They do after the group is made, and its messages arrive; the rank's own thread is scheduled as before."""
    before, store, limit = len(gloo_threads()), HashStore(), timedelta(seconds=20)
    with ThreadPoolExecutor(2) as pool:
        joining = [pool.submit(join_members, "gloo", store, (0, 1), rank, limit) for rank in range(2)]
        first, second = (future.result(40) for future in joining)
    try:
        assert len(gloo_threads()) == before + 2
        assert policies() == {os.SCHED_BATCH}
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
        exchanged(first, second)
        schedule_gloo_threads(batch=False)
        assert policies() == {os.SCHED_OTHER}
        exchanged(first, second)
    finally:
        first.group.shutdown()
        second.group.shutdown()


def exchanged(first: Channel, second: Channel) -> None:
    """Send a megabyte from one rank to the other."""
    data, target = torch.arange(1 << 18, dtype=torch.float32), torch.zeros(1 << 18)
    works = [second.recv(target, 0, 0), first.send(data, 1, 0)]
    for work in works:
        work.wait(timedelta(seconds=20))
    assert torch.equal(data, target)

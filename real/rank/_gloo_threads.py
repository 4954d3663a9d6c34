"""How gloo's own threads are scheduled beside the thread of the rank that computes.

Every gloo process group has a thread that reads and writes its sockets. A rank that sends holds the lock of the
connection while it copies into the socket, and what the other rank sends meanwhile wakes that thread. On a core of its
own the thread waits for the lock, without sleeping; on the rank's core it takes the core from the rank that holds the
lock, and tries in vain until the next tick of the scheduler, for up to 4 ms of an exchange that takes 0.3. Under the
policy for batch work a thread that wakes up does not interrupt another one: it runs once the rank waits, or at a tick.
`python -m benchmarks.exchange_latency` measures both.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "gloo_tcp_loop"
"""What gloo calls these threads, as the kernel cuts it."""


def gloo_threads() -> list[int]:
    """The kernel's ids of the threads of this process that serve gloo's sockets; none where there is no /proc."""
    found = []
    for task in Path("/proc/self/task").glob("*"):
        try:
            if (task / "comm").read_text().startswith(NAME):
                found.append(int(task.name))
        except OSError:  # the thread has ended meanwhile
            continue
    return found


def schedule_gloo_threads(batch: bool = True) -> None:
    """Let gloo's threads wait until the rank waits, or treat them like any other; call it after a group is made.

    Changes nothing where the system has no such policy or does not allow it: exchanges are slower then, no more.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    policy = os.SCHED_BATCH if batch else os.SCHED_OTHER
    for thread in gloo_threads():
        try:
            os.sched_setscheduler(thread, policy, os.sched_param(0))
        except OSError:
            continue

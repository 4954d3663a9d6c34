"""Runs calls in worker processes, all of which end when one dies or the parent is killed.

Uses joblib's loky pool. A worker that is killed breaks its pool; the calls in progress are then repeated one
at a time, so that the failing one is identified and all others complete.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple, TypeVar

A = TypeVar("A")
R = TypeVar("R")
WATCH_S = 0.2  # how often a worker checks whether its parent is alive


CALL_S = 24 * 3600.0
"""How long a call may take, by default."""

LOST_AGAIN = 3
"""How often a call whose worker or job elsewhere was lost is run again."""


class Died(NamedTuple):
    """The result of a call whose process died, or was ended because it took too long."""

    why: str = "its process died"


class _Overdue(Exception):
    """A call takes too long: its argument."""


def map_on_processes(
    call: Callable[[A], R], arguments: Iterable[A], jobs: int, go_on: Callable[[A], bool], limit_s: float = CALL_S
) -> Iterator[tuple[A, R | Died]]:
    """`call(a)` for every argument on `jobs` processes; yields (argument, result) as they complete.

    Args:
        call: a function that a new process can import; it should return its failures, not raise them.
        go_on: called before each call is started; where it returns False, the argument is left out.
        limit_s: seconds a call may take. Those beside one that takes longer are begun again.
    """
    waiting, suspects = list(arguments), list[A]()
    while waiting or suspects:
        alone = bool(suspects)
        queue = [suspects.pop(0)] if alone else waiting
        begun: list[A] = []
        try:
            for argument, result in _pool(call, queue, 1 if alone else jobs, go_on, begun, limit_s):
                begun.remove(argument)
                yield argument, result
        except _Overdue as overdue:
            (late,) = overdue.args
            begun.remove(late)
            (suspects if alone else waiting)[:0] = begun
            yield late, Died(f"it did not end within {limit_s:g} s")
        except BrokenProcessPool:
            if alone:
                yield begun[0], Died()
            else:
                suspects = begun


def _pool(
    call: Callable[[A], R], queue: list[A], jobs: int, go_on: Callable[[A], bool], begun: list[A], limit_s: float
) -> Iterator[tuple[A, R]]:
    """Run one pool: takes arguments off the queue, and keeps those in progress in `begun`."""
    from joblib.externals.loky import ProcessPoolExecutor  # not for commands that only list things

    pool = ProcessPoolExecutor(min(jobs, len(queue)), timeout=None, initializer=end_with, initargs=(os.getpid(),))
    running: dict[Future[R], A] = {}
    deadlines: dict[Future[R], float] = {}
    try:
        while queue or running:
            while queue and len(running) < jobs:
                argument = queue.pop(0)
                if go_on(argument):
                    begun.append(argument)
                    future = pool.submit(call, argument)
                    running[future], deadlines[future] = argument, time.monotonic() + limit_s
            if not running:
                continue
            first = min(deadlines[future] for future in running)
            done, _ = wait(running, max(0.0, first - time.monotonic()), return_when=FIRST_COMPLETED)
            for future in done:
                result = future.result()
                yield running.pop(future), result
            for future in () if done else running:
                if time.monotonic() >= deadlines[future]:
                    raise _Overdue(running[future])
    finally:
        pool.shutdown(wait=True, kill_workers=True)


def end_with(parent: int) -> None:
    """End this process soon after its parent has ended, whatever it is doing."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()

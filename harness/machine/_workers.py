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
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")
WATCH_S = 0.2  # how often a worker checks whether its parent is alive


class Died:
    """The result of a call whose process died."""


def map_on_processes(
    call: Callable[[A], R], arguments: Iterable[A], jobs: int, go_on: Callable[[A], bool]
) -> Iterator[tuple[A, R | Died]]:
    """`call(a)` for every argument on `jobs` processes; yields (argument, result) as they complete.

    Args:
        call: a function that a new process can import; it should return its failures, not raise them.
        go_on: called before each call is started; where it returns False, the argument is left out.
    """
    waiting, suspects = list(arguments), list[A]()
    while waiting or suspects:
        alone = bool(suspects)
        queue = [suspects.pop(0)] if alone else waiting
        begun: list[A] = []
        try:
            for argument, result in _pool(call, queue, 1 if alone else jobs, go_on, begun):
                begun.remove(argument)
                yield argument, result
        except BrokenProcessPool:
            if alone:
                yield begun[0], Died()
            else:
                suspects = begun


def _pool(
    call: Callable[[A], R], queue: list[A], jobs: int, go_on: Callable[[A], bool], begun: list[A]
) -> Iterator[tuple[A, R]]:
    """Run one pool: takes arguments off the queue, and keeps those in progress in `begun`."""
    from joblib.externals.loky import ProcessPoolExecutor  # not for commands that only list things

    pool = ProcessPoolExecutor(min(jobs, len(queue)), timeout=None, initializer=end_with, initargs=(os.getpid(),))
    running: dict[Future[R], A] = {}
    try:
        while queue or running:
            while queue and len(running) < jobs:
                argument = queue.pop(0)
                if go_on(argument):
                    begun.append(argument)
                    running[pool.submit(call, argument)] = argument
            done, _ = wait(running, return_when=FIRST_COMPLETED) if running else (set(), None)
            for future in done:
                result = future.result()
                yield running.pop(future), result
    finally:
        pool.shutdown(wait=True, kill_workers=True)


def end_with(parent: int) -> None:
    """End this process soon after its parent has ended, whatever it is doing."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()

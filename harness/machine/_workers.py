"""Runs calls in worker processes that leave nothing behind: not when one dies, not when the parent is killed.

joblib's loky pool does the work. A worker that is killed breaks its pool; the calls it had in hand are then tried one
at a time, so that the one to blame is known and all others get done.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from joblib.externals.loky import ProcessPoolExecutor

A = TypeVar("A")
R = TypeVar("R")
WATCH_S = 0.2  # how often a worker looks whether its parent still lives


class Died:
    """The answer of a call whose process died."""


def each(
    call: Callable[[A], R], arguments: Iterable[A], jobs: int, go_on: Callable[[A], bool]
) -> Iterator[tuple[A, R | Died]]:
    """`call(a)` for every argument on `jobs` processes; yields (argument, answer) as they are done.

    Args:
        call: a function that a fresh process can import; it should answer its failures, not raise them.
        go_on: asked before each call is begun; where it says no, the argument is left out.
    """
    waiting, suspects = list(arguments), list[A]()
    while waiting or suspects:
        alone = bool(suspects)
        queue = [suspects.pop(0)] if alone else waiting
        begun: list[A] = []
        try:
            for argument, answer in _pool(call, queue, 1 if alone else jobs, go_on, begun):
                begun.remove(argument)
                yield argument, answer
        except BrokenProcessPool:
            if alone:
                yield begun[0], Died()
            else:
                suspects = begun


def _pool(
    call: Callable[[A], R], queue: list[A], jobs: int, go_on: Callable[[A], bool], begun: list[A]
) -> Iterator[tuple[A, R]]:
    """One pool's life: takes arguments off the queue, notes in `begun` which are in hand."""
    pool = ProcessPoolExecutor(min(jobs, len(queue)), timeout=None, initializer=_watch, initargs=(os.getpid(),))
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
                answer = future.result()
                yield running.pop(future), answer
    finally:
        pool.shutdown(wait=True, kill_workers=True)


def _watch(parent: int) -> None:
    """Ends this worker soon after its parent is gone, whatever it is doing."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()

"""Runs calls on the workers of a Dask cluster (the extra `dask`): one that is there, or processes of this machine.

Dask's scheduler gives the call of a lost worker to another one, as often as its `allowed-failures` says. Calls and
results travel over its connections only, in Dask's own format; who reaches a scheduler may run anything on its workers.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from harness.errors import HaloscopeError, InputError
from harness.machine import CALL_S, LOST_AGAIN, Died, Reserved, code_version, core_count, run_folder
from harness.running.results import environment

A = TypeVar("A")
R = TypeVar("R")

CONNECT_S = 30.0
"""How long a scheduler may take to answer."""

JOIN_S = 60.0
"""How long a cluster may be without any worker at the beginning."""

LOST_S = 600.0
"""How long it may be without any later, while lost ones are started again."""

SEEN_S = 15.0
"""How long a new file of the shared folder may take until another machine sees it."""

_POLL_S = 1.0
_ADDRESS = re.compile(r"((tcp|tls)://)?(\[[0-9a-fA-F:]+\]|[A-Za-z0-9_.-]+):\d{1,5}")
_GOES_ON = "finished cells are kept, and the same command goes on from them"
_ALONE = threading.Lock()
"""Held while a cell runs: threads of a worker would share torch's settings and the caches of a process."""


def _silent(line: str) -> None:
    pass


class Refused(NamedTuple):
    """The answer of a worker that cannot run cells of this driver."""

    why: str


def dask_address(text: str) -> str:
    """The address behind `dask:`: HOST:PORT, tcp:// or tls://HOST:PORT, or a scheduler file; empty for workers here.

    Raises:
        InputError: it is none of these.
    """
    if text and not _ADDRESS.fullmatch(text) and not text.endswith(".json"):
        raise InputError(
            f"--on dask:{text}: write dask:HOST:PORT, dask:tls://HOST:PORT, dask:FILE.json (a scheduler file), or dask "
            "for workers on this machine"
        )
    if text.endswith(".json") and not Path(text).is_file():
        raise InputError(f"--on dask:{text}: no such file; `dask scheduler --scheduler-file {text}` writes it")
    return text


class DaskWorkers:
    """A `CellEngine` on Dask workers; they are reached, or started on loopback, when they are first asked for.

    Args:
        address: as `dask_address` returns.
        asked: cells at a time, and workers to start here; 0 for one per worker, and one per core here.
        folder: of the results; a worker that does not see it is refused.
        say: takes a line about workers that are started.
    """

    here = False

    def __init__(self, address: str, asked: int, folder: Path, say: Callable[[str], None] = _silent) -> None:
        self.address, self.asked, self.folder, self.say = address, asked, folder, say
        try:
            self._dask: Any = import_module("distributed")
        except ModuleNotFoundError:
            raise InputError("--on dask needs Dask: pip install 'haloscope[dask]'") from None
        self._client: Any = None
        self._opened = ExitStack()

    def places(self, cells: int | None = None) -> int:
        """As `CellEngine.places`; connects to a cluster elsewhere."""
        most = self.asked or (len(self._workers()) if self.address else core_count())
        return max(1, most if cells is None else min(most, cells))

    def map(
        self, call: Callable[[A], R], arguments: Iterable[A], go_on: Callable[[A], bool], limit_s: float = CALL_S
    ) -> Iterator[tuple[A, R | Died]]:
        """As `CellEngine.map`; cells in progress are called off when the caller stops.

        Args:
            limit_s: seconds a call may take, with the time in which it waits for a worker.

        Raises:
            InputError: a worker has other code or libraries, or does not see the folder of results.
            HaloscopeError: the scheduler is gone, or there has been no worker for `LOST_S`.
        """
        waiting, running = list(arguments), dict[Any, tuple[A, float]]()
        if not waiting:
            return
        client = self._connected()
        self.folder.mkdir(parents=True, exist_ok=True)
        mark = Reserved(self.folder / "workers", 1)  # a file of its own, which a killed driver's successor removes
        seen = time.monotonic()
        try:
            while waiting or running:
                count = len(self._workers())
                seen = time.monotonic() if count else seen
                if time.monotonic() - seen > LOST_S:
                    raise HaloscopeError(f"no worker at {self._name()} for {LOST_S:g} s; {_GOES_ON}")
                while waiting and len(running) < (self.asked or max(1, count)):
                    argument = waiting.pop(0)
                    if go_on(argument):
                        future = client.submit(_on_worker, _stamp(), str(mark.scratch), call, argument, pure=False)
                        running[future] = argument, time.monotonic() + limit_s
                for future in self._ended(running):
                    yield running.pop(future)[0], self._answer(future)
                for future in [future for future, (_, end) in running.items() if time.monotonic() > end]:
                    future.cancel()
                    yield running.pop(future)[0], Died(f"it did not end within {limit_s:g} s")
        finally:
            mark.close()
            for future in running:
                future.cancel()

    def close(self) -> None:
        """End the connection, and the workers that were started here; a second call does nothing."""
        self._opened.close()
        self._client = None

    def _ended(self, running: Iterable[Any]) -> list[Any]:
        futures = list(running)
        if futures:
            try:
                with self._client.as_current():
                    self._dask.wait(futures, timeout=_POLL_S, return_when="FIRST_COMPLETED")
            except TimeoutError:
                pass
            except self._dask.CancelledError:
                raise HaloscopeError(f"the scheduler at {self._name()} is gone; {_GOES_ON}") from None
        return [future for future in futures if future.done()]

    def _answer(self, future: Any) -> Any:
        """The result of a call that has ended; Died if every worker that had it was lost."""
        try:
            result = future.result(timeout=CONNECT_S)
        except self._dask.KilledWorker as lost:
            times = lost.allowed_failures + 1
            return Died(f"its worker was lost {times} times")
        except self._dask.CancelledError:
            raise HaloscopeError(f"the scheduler at {self._name()} is gone; {_GOES_ON}") from None
        except (ModuleNotFoundError, AttributeError, RuntimeError) as error:
            if "deseriali" in str(error).lower() or isinstance(error, ModuleNotFoundError):
                raise InputError(f"{self._name()} cannot read cells: install this haloscope there too") from None
            raise
        if isinstance(result, Refused):
            raise InputError(result.why)
        return result

    def _name(self) -> str:
        return f"dask:{self.address}" if self.address else "dask"

    def _workers(self) -> list[str]:
        """Addresses of the workers that are there now."""
        client = self._connected()
        try:
            return list(client.scheduler_info(n_workers=-1)["workers"])
        except (OSError, KeyError):
            return []

    def _connected(self) -> Any:
        if self._client is None:
            for name in ("distributed", "distributed.client", "distributed.core", "tornado.application"):
                logging.getLogger(name).setLevel(logging.CRITICAL)  # what went wrong is said in one line
            place = {"address": self._started()} if not self.address else self._there()
            try:
                client = self._dask.Client(**place, timeout=CONNECT_S, set_as_default=False)
            except (OSError, TimeoutError, ValueError) as error:
                said = " ".join(str(error).split()) or type(error).__name__
                raise InputError(f"--on {self._name()}: no scheduler answers: {said}") from None
            self._opened.callback(client.close)
            try:
                client.wait_for_workers(1, timeout=JOIN_S)
            except TimeoutError:
                raise InputError(
                    f"--on {self._name()}: no worker within {JOIN_S:g} s; start some: dask worker ADDRESS --nthreads 1"
                ) from None
            self._client = client
        return self._client

    def _there(self) -> dict[str, Any]:
        return {"scheduler_file" if self.address.endswith(".json") else "address": self.address}

    def _started(self) -> Any:
        """Workers on this machine that only this machine reaches; they end with this process."""
        config = import_module("dask").config
        scratch = self._opened.enter_context(run_folder())
        self._opened.enter_context(
            config.set(
                {
                    "temporary-directory": str(scratch),
                    "distributed.nanny.pre-spawn-environ": {},  # it would be set in this process too
                    "distributed.scheduler.worker-ttl": None,  # a call may hold the interpreter for minutes
                    "distributed.admin.tick.limit": "1h",
                    "distributed.scheduler.allowed-failures": LOST_AGAIN,
                }
            )
        )
        cluster = self._dask.LocalCluster(
            n_workers=self.places(), threads_per_worker=1, processes=True, host="127.0.0.1", memory_limit=0,
            dashboard_address=None, local_directory=str(scratch), silence_logs=logging.CRITICAL,
        )  # fmt: skip
        self._opened.callback(cluster.close)
        self.say(f"{self.places()} workers on this machine at {cluster.scheduler_address}")
        return cluster


@cache
def _stamp() -> tuple[str, str]:
    """What a worker must have to compute what this process would: code and libraries."""
    versions = environment()["versions"]
    return code_version("harness", "sims", "real", "reports"), " ".join(f"{k} {v}" for k, v in sorted(versions.items()))


def _on_worker(stamp: tuple[str, str], mark: str, call: Callable[[A], R], argument: A) -> R | Refused:
    """What runs on a worker: the call, unless its result could differ from the driver's or would be lost."""
    mine = _stamp()
    where = f"the worker on {socket.gethostname()} (process {os.getpid()})"
    if mine[1] != stamp[1]:
        return Refused(f"{where} has {mine[1]}, this process {stamp[1]}: install the same there")
    if mine[0] != stamp[0]:
        return Refused(f"{where} has other code of haloscope: install the same there, and start it again")
    end = time.monotonic() + SEEN_S
    while not Path(mark).exists():
        if time.monotonic() > end:
            return Refused(f"{where} does not see {Path(mark).parent}: results need a folder that all machines share")
        time.sleep(0.2)
    with _ALONE:
        return call(argument)

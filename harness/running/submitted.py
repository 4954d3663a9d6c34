"""Runs calls as jobs of a scheduler through submitit (the extra `slurm`), as `harness.machine` does on one machine.

submitit passes calls and results in its own pickle files, in a folder that only this user should be able to write to.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import InputError, unknown
from harness.machine import LOST_AGAIN, Died

A = TypeVar("A")
R = TypeVar("R")

SCHEDULERS = ("slurm", "local")
"""submitit's `cluster`; local: processes of this machine, to try out what would be jobs."""

LOOK_S = {"slurm": 5.0, "local": 0.2}
"""Seconds between queries of the scheduler for ended jobs."""

JOB_S = 7 * 24 * 3600.0
"""How long a job may wait in the queue and run, by default."""

LOST = Died("its job was lost")
"""The result of a job of which nothing came back."""

ENDED = ("TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "DEADLINE")
"""Slurm's states of jobs that would end in the same way again, or that somebody ended."""

COUNTS = ("timeout_min", "nodes", "tasks_per_node", "cpus_per_task", "gpus_per_node")


def options_of(text: str) -> dict[str, Any]:
    """submitit's parameters from "timeout_min=60,slurm_partition=gpu". Raises InputError unless all are KEY=VALUE."""
    found: dict[str, Any] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        key, equals, value = word.partition("=")
        if not (equals and key and value):
            raise InputError(f"--on slurm:{word}: write KEY=VALUE, e.g. slurm:timeout_min=60,slurm_partition=gpu")
        if key in COUNTS and not value.isdecimal():
            raise InputError(f"--on slurm:{key}: must be a whole number, not {value!r}")
        if key == "mem_gb" and not value.replace(".", "", 1).isdecimal():
            raise InputError(f"--on slurm:{key}: must be a number, not {value!r}")
        found[key] = int(value) if key in COUNTS else float(value) if key == "mem_gb" else value
    return found


def executor(scheduler: str, folder: Path, options: dict[str, Any]) -> Any:
    """A submitit executor whose jobs keep scripts, logs and results in `folder`.

    Raises:
        InputError: submitit is not installed, the scheduler is not available here, or an option is unknown.
    """
    try:
        submitit = import_module("submitit")
    except ModuleNotFoundError:
        raise InputError("--on slurm needs submitit: pip install 'haloscope[slurm]'") from None
    try:
        made = submitit.AutoExecutor(folder=folder, cluster=scheduler)
        made.update_parameters(name="haloscope", **options)
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        raise InputError(f"--on slurm: {' '.join(str(error).split())}") from None
    return made


class SubmittedJobs:
    """A `CellEngine` on jobs of a scheduler.

    Args:
        folder: of scripts, logs and results of jobs.
        options: submitit's parameters; `cluster=local` runs jobs as processes of this machine.
        asked: jobs in the queue at a time; 0 for one for every cell.

    Raises:
        InputError: as `executor`.
    """

    here = False

    def __init__(self, folder: Path, options: Mapping[str, Any], asked: int = 0) -> None:
        others = dict(options)
        scheduler = others.pop("cluster", SCHEDULERS[0])
        if scheduler not in SCHEDULERS:
            raise unknown("cluster of --on slurm", scheduler, SCHEDULERS)
        self.submitter, self.poll_s, self.asked = executor(scheduler, folder, others), LOOK_S[scheduler], asked

    def places(self, cells: int | None = None) -> int:
        """As `CellEngine.places`."""
        return max(1, self.asked or cells or 1)

    def map(
        self, call: Callable[[A], R], arguments: Iterable[A], go_on: Callable[[A], bool]
    ) -> Iterator[tuple[A, R | Died]]:
        """As `CellEngine.map`."""
        waiting = list(arguments)
        return map_on_jobs(call, waiting, self.places(len(waiting)), go_on, self.submitter, self.poll_s)


def map_on_jobs(
    call: Callable[[A], R],
    arguments: Iterable[A],
    jobs: int,
    go_on: Callable[[A], bool],
    submitter: Any,
    poll_s: float,
    limit_s: float = JOB_S,
) -> Iterator[tuple[A, R | Died]]:
    """`call(a)` for every argument as a job of `submitter`, `jobs` at a time; as `harness.machine.map_on_processes`.

    A job that is lost is submitted again, `LOST_AGAIN` times at most; not one that reached its limit of time or memory,
    or was cancelled. Running jobs are cancelled when the caller stops, and those that have not ended `limit_s` after
    they were submitted.
    """
    waiting = [(argument, 0) for argument in arguments]  # and how often its job was lost
    running, since = dict[Any, tuple[A, int]](), dict[Any, float]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                argument, lost = waiting.pop(0)
                if lost or go_on(argument):
                    with _hearing_interrupts():
                        job = submitter.submit(call, argument)
                    running[job], since[job] = (argument, lost), time.monotonic()
            ended = [job for job in running if job.done()]
            for job in ended:
                (argument, lost), result = running.pop(job), _result(job)
                if result is LOST and lost < LOST_AGAIN:
                    waiting.insert(0, (argument, lost + 1))
                else:
                    yield argument, Died(f"its job was lost {lost + 1} times") if result is LOST else result
            for job in [job for job in running if time.monotonic() - since[job] > limit_s]:
                job.cancel()
                yield running.pop(job)[0], Died(f"its job did not end within {limit_s:g} s of its submission")
            if running and not ended:
                time.sleep(poll_s)
    finally:
        for job in running:
            job.cancel()


@contextmanager
def _hearing_interrupts() -> Iterator[None]:
    """Context in which started processes handle SIGINT, which ends submitit's local jobs.

    Background jobs of a shell ignore SIGINT, and their children would inherit that.
    """
    deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread()
    if deaf:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if deaf:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _result(job: Any) -> Any:
    """The result of a job that has ended; Died if it failed outside of the call or was ended, LOST if it left none."""
    failed = import_module("submitit.core.utils")
    try:
        return job.result()
    except failed.FailedJobError:
        return Died()
    except failed.UncompletedJobError:
        state = str(getattr(job, "state", "")).partition(" ")[0]
        return Died(f"its job ended: {state}") if state in ENDED else LOST

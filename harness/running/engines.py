"""Where cells run: processes of this machine, jobs of a scheduler, or the workers of a Dask cluster.

Every engine runs calls as they become free and hands back (argument, result); what finished cells are, and that they
are not run again, is known to the files that the callers keep. A cell whose process is lost is run again: once and
alone on this machine, `LOST_AGAIN` times elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from harness.errors import InputError, unknown
from harness.machine import Died, core_count, map_on_processes
from harness.running.dask_workers import DaskWorkers, dask_address
from harness.running.submitted import SubmittedJobs, options_of

A = TypeVar("A")
R = TypeVar("R")

ENGINES = {
    "local": "processes of this machine",
    "slurm": "a Slurm job for each cell (extra slurm); slurm:KEY=VALUE,... gives each job submitit's parameters",
    "dask": "workers on this machine, or dask:HOST:PORT those of a Dask cluster (extra dask)",
}
"""Name -> what it is, for help."""


class CellEngine(Protocol):
    """What runs cells."""

    @property
    def here(self) -> bool:
        """Whether cells take this machine's cores and memory."""

    def places(self, cells: int | None = None) -> int:
        """How many cells run at a time, of so many (of any number when None); at least 1."""

    def map(
        self, call: Callable[[A], R], arguments: Iterable[A], go_on: Callable[[A], bool]
    ) -> Iterator[tuple[A, R | Died]]:
        """`call(a)` for every argument; yields (argument, result) as they complete, as `map_on_processes`.

        Args:
            call: what another process can import; it returns its failures, and names files by whole paths.
            go_on: called before each call is started; where it returns False, the argument is left out.
        """


@dataclass(frozen=True)
class LocalProcesses:
    """Processes of this machine; a cell at a time needs none but this one.

    Attributes:
        asked: processes; 0 for one per core.
        one_here: a single cell runs in this process too, which may then die with it.
    """

    asked: int = 0
    one_here: bool = True
    here = True

    def places(self, cells: int | None = None) -> int:
        """As `CellEngine.places`."""
        most = self.asked or core_count()
        return max(1, most if cells is None else min(most, cells))

    def map(
        self, call: Callable[[A], R], arguments: Iterable[A], go_on: Callable[[A], bool]
    ) -> Iterator[tuple[A, R | Died]]:
        """As `CellEngine.map`."""
        waiting = list(arguments)
        jobs = self.places(len(waiting) if self.one_here else None)
        if jobs == 1:
            yield from ((argument, call(argument)) for argument in waiting if go_on(argument))
        else:
            yield from map_on_processes(call, waiting, jobs, go_on)


@contextmanager
def opened_engine(
    on: str, jobs: int, folder: Path, say: Callable[[str], None] = lambda _: None, *, one_here: bool = True
) -> Iterator[CellEngine]:
    """The engine that `--on` and `--jobs` name; what it started has ended when the block ends.

    Args:
        jobs: cells at a time; 0 for as many as the engine has room for.
        folder: of the results, which workers elsewhere must see too; job files go to `jobs` in it.
        say: takes a line about workers that are started.
        one_here: as for `LocalProcesses`.

    Raises:
        InputError: unknown engine, bad parameter, or an extra that is not installed.
    """
    if jobs < 0:
        raise InputError("jobs must be at least 1")
    name, _, rest = on.partition(":")
    if name not in ENGINES:
        raise unknown("engine of --on", name, ENGINES)
    if name == "local":
        if rest:
            raise InputError(f"--on {on}: local takes no parameters; --jobs N says how many processes")
        yield LocalProcesses(jobs, one_here)
    elif name == "slurm":
        yield SubmittedJobs(folder.absolute() / "jobs", options_of(rest), jobs)
    else:
        workers = DaskWorkers(dask_address(rest), jobs, folder.absolute(), say)
        try:
            yield workers
        finally:
            workers.close()

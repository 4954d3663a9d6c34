"""Starts the ranks of a run on this machine, watches them, and ends all of them.

Ranks communicate over the loopback interface only, unless they are put on other hosts of this machine (`real.lab`). The
run's key-value store is in the launcher's process, so that last words outlive the rank that left them. A rank runs
`python -m real`, or any other command line.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TextIO

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from harness.errors import REPEATED, HaloscopeError, InputError
from harness.machine import CORES_VARIABLE as CORES_VARIABLE
from harness.machine import RUN_FOLDER_VARIABLE, Claim, core_count, run_folder, usable_cores
from real.lab import LOOPBACK, HostSetup, ThisMachine
from real.launch._child import Child, Exit
from real.launch._fork_server import ForkServer, RankProcess, server_for
from real.rank import place
from real.rank.health import ERROR_PREFIX, LAUNCHER_VARIABLE, read_words

GRACE_S = 5.0
"""Seconds that the other ranks may continue once one has failed. With KILL_S, all end within ten seconds."""

LAST_S = 60.0
"""How long the last ranks may still run once others have ended without error."""

KILL_S = 3.0
"""How long a rank may take to end after SIGTERM."""


class RankFailed(HaloscopeError):
    """A rank's process failed, was killed or stopped, or did not end in time.

    Attributes:
        rank: which one.
        kind: the class name of its error; empty where it left no last words.
        exits: how every rank ended, in rank order; empty when the deadline of the whole run passed.
    """

    def __init__(self, rank: int, message: str, kind: str = "", exits: Sequence[Exit] = ()) -> None:
        super().__init__(message)
        self.rank, self.kind, self.exits = rank, kind, tuple(exits)
        self.state = REPEATED.get(kind, HaloscopeError).state


class _Echo:
    """Prints what rank 0 writes, line by line, except its error."""

    def __init__(self, log: Path, out: TextIO) -> None:
        self.log, self.out = log, out
        self.seen, self.rest = 0, b""

    def pass_on(self) -> None:
        """Print the lines that were completed since the last call."""
        with self.log.open("rb") as stream:
            stream.seek(self.seen)
            data = stream.read()
        self.seen += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            if not text.startswith(ERROR_PREFIX):
                print(text, file=self.out, flush=True)


def launch(
    arguments: Sequence[str],
    parts: int,
    *,
    threads: int = 0,
    deadline_s: float | None = None,
    grace_s: float = GRACE_S,
    env: Mapping[str, str] | None = None,
    echo: TextIO | None = None,
    poll: Callable[[], None] = lambda: None,
    site: HostSetup | None = None,
    fork: bool = True,
) -> str:
    """Run `python ARGUMENTS` on `parts` ranks and wait until all have ended without error.

    Returns why the ranks had no cores of their own, so that their times are worth little; empty where they had.

    Args:
        threads: CPU threads per rank; 0 shares the cores of this machine among the ranks.
        deadline_s: seconds the whole run may take; None for no limit.
        grace_s: seconds that the other ranks may continue after one has failed.
        env: more environment variables for the ranks.
        echo: where rank 0's output lines go; stderr when None.
        poll: called about every 50 ms while the ranks run, and once after.
        site: the hosts that the ranks run on; this machine when None.
        fork: whether ranks may be forked from a process that has imported torch (`_fork_server`).

    Raises:
        InputError: a rank ended with exit code 2.
        RankFailed: a rank failed or was killed, or the deadline passed. The message names the rank and has the last
            line that it wrote.
    """
    site = site or ThisMachine()
    threads = threads or max(1, core_count() // parts)
    server = preload(threads, env) if fork and arguments[0] == "-m" else None
    with (
        Claim(parts * threads) as claim,
        run_folder() as folder,
        _host_store(site) as (store, port),
    ):
        shared = _shared(claim, parts * threads)
        cores, children = [] if shared else claim.cores, list[Child]()
        try:
            for rank in range(parts):
                mine = cores[rank * threads : (rank + 1) * threads]
                children.append(_spawn(arguments, rank, parts, port, threads, mine, env or {}, folder, site, server))
            said = _Echo(children[0].log, echo or sys.stderr)

            def beat() -> None:
                said.pass_on()
                poll()

            _supervise(children, store, grace_s, deadline_s, beat)
        finally:
            _end(children)
        _raise_failure(children, store)
    return shared


def _shared(claim: Claim, needed: int) -> str:
    """Why `needed` threads have no cores of their own; empty where they have."""
    if len(claim.cores) == needed:
        return ""
    usable = len(claim.cores) + len(claim.taken)
    if claim.taken:
        why = f"other runs hold {len(claim.taken)} of {usable} cores, {needed} are needed"
        logging.getLogger("haloscope").warning("%s: times of this run are worth little", why)
        return why
    return f"{needed} threads share {usable} cores"


@contextmanager
def _host_store(site: HostSetup) -> Iterator[tuple[Store, int]]:
    """A key-value store that listens where the site says, and its port."""
    limit = timedelta(seconds=10)
    with site.inside(None):
        listener = socket.create_server((site.listens, 0))
        port: int = listener.getsockname()[1]
        tcp = TCPStore(LOOPBACK, port, None, True, limit, wait_for_workers=False, master_listen_fd=listener.detach())
    yield PrefixStore("words", PrefixStore("haloscope/0", tcp)), port


def _spawn(
    arguments: Sequence[str],
    rank: int,
    parts: int,
    port: int,
    threads: int,
    cores: Sequence[int],
    env: Mapping[str, str],
    folder: Path,
    site: HostSetup,
    server: ForkServer | None,
) -> Child:
    log, where = folder / f"rank{rank}.log", folder / f"rank{rank}.place"
    place.create(where)
    variables = {
        "RANK": str(rank),
        "WORLD_SIZE": str(parts),
        "MASTER_ADDR": site.address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        LAUNCHER_VARIABLE: str(where),
        CORES_VARIABLE: ",".join(map(str, usable_cores())),
        RUN_FOLDER_VARIABLE: str(folder),
        **site.environment(rank, parts),
    }
    environment = {**_loading_environment(threads, env), **variables, **env}
    with site.inside(rank), _pinned(cores), log.open("wb") as out:
        forked = server and server.start(arguments[1], arguments[2:], environment, out)
        process: RankProcess = forked or subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,  # never written to: it closes when this process ends, in whatever way
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            process_group=0,  # Ctrl-C reaches the launcher alone, which then ends the ranks
        )
    return Child(rank, process, log, where)


def preload(threads: int, env: Mapping[str, str] | None = None) -> ForkServer | None:
    """Begin to load, beside this process, what ranks with `threads` threads need; None where they cannot be forked."""
    return server_for(_loading_environment(threads, env or {}))


def _loading_environment(threads: int, env: Mapping[str, str]) -> dict[str, str]:
    """What is in the environment of a rank when it loads its libraries."""
    ours = {
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # a lost connection is reported by us, in one line
        "OMP_NUM_THREADS": str(threads),
        "PYTHONUNBUFFERED": "1",
    }
    return {**os.environ, **ours, **env}


@contextmanager
def _pinned(cores: Sequence[int]) -> Iterator[None]:
    """Processes started within are pinned to these cores, if there are any.

    A rank that wakes up on a core where another one computes waits for the scheduler's tick, for milliseconds.
    """
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _supervise(
    children: list[Child], store: Store, grace_s: float, deadline_s: float | None, beat: Callable[[], None]
) -> None:
    """Return once every rank has ended, or one has failed and `grace_s` of the others is over.

    A rank that is stopped gets no grace period: it could not use it.
    """
    begun = time.monotonic()
    while True:
        for child in children:
            child.poll(store)
        beat()
        now = time.monotonic()
        alive = [c for c in children if c.ended_at is None]
        failed_at = _first_failure(children)
        if failed_at is not None and (now - failed_at > grace_s or all(c.stopped for c in alive)):
            return
        if not alive:
            return
        ended = [c.ended_at for c in children if c.ended_at is not None]
        if ended and now - max(ended) > LAST_S:
            fates = "; ".join(f"rank {c.rank} {c.fate()}" for c in alive)
            raise RankFailed(alive[0].rank, f"{fates}, {LAST_S:g} s after the other ranks had ended")
        if deadline_s is not None and now - begun > deadline_s:
            ranks = ", ".join(str(c.rank) for c in alive)
            fates = "; ".join(f"rank {c.rank} {c.fate()}" for c in alive)
            raise RankFailed(alive[0].rank, f"rank {ranks} did not end within {deadline_s:g} s: {fates}")
        time.sleep(0.05)


def _first_failure(children: list[Child]) -> float | None:
    return min((c.ended_at for c in children if c.ended_at is not None and c.failed), default=None)


def _raise_failure(children: list[Child], store: Store) -> None:
    """Raise the error of the rank that failed first; return if none did.

    The blame goes to a rank that was killed or stopped, if any; else to one that reports its own failure, then to one
    that never ended, then to one that lost another.
    """
    if _first_failure(children) is None:
        return
    failed = sorted((c for c in children if c.failed), key=lambda c: c.ended_at or 0.0)
    exits = [child.exit() for child in children]
    signalled = [c for c in failed if c.killed] or [c for c in children if c.stopped]
    if signalled:
        culprit = signalled[0]
        message = [f"rank {culprit.rank} {culprit.fate()}"]
        if line := culprit.last_line():
            message.append(f"last line of rank {culprit.rank}: {line}")
        message += [c.last_words(store) for c in children if c is not culprit and c.ended_at is not None]
        failure = RankFailed(culprit.rank, "; ".join(message), exits=exits)
        failure.state = "killed" if culprit.killed else "failed"
        raise failure
    words = [w for w in (read_words(store, c.rank) for c in failed) if w is not None]
    first = min((w for w in words if w.state == "failed"), key=lambda w: w.order, default=None)
    culprit = children[first.rank] if first is not None else failed[0]
    line, kind = culprit.last_line() or culprit.fate(), first.kind if first is not None else ""
    if culprit.process.returncode == 2:
        raise InputError(line)
    lost = any(w.rank == culprit.rank and w.state == "lost" for w in words)
    silent = [c for c in children if lost and c.ended_at is None]
    line = line if f"rank {culprit.rank}" in line else f"rank {culprit.rank}: {line}"
    line = "; ".join([line, *(f"rank {c.rank} {c.fate()}" for c in silent)])
    raise RankFailed((silent or [culprit])[0].rank, line, kind, exits)


def _end(children: list[Child]) -> None:
    """Make sure that no rank outlives this call."""
    alive = [c for c in children if c.process.poll() is None]
    for child in alive:
        child.process.kill() if child.stopped else child.process.terminate()
    deadline = time.monotonic() + KILL_S
    for child in alive:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
    for child in children:
        with suppress(subprocess.TimeoutExpired):  # not even SIGKILL ends a process that hangs in the kernel
            child.process.wait(KILL_S)
        with suppress(ProcessLookupError, PermissionError):  # processes that the rank itself had started
            os.killpg(child.process.pid, signal.SIGKILL)
        assert child.process.stdin is not None
        child.process.stdin.close()

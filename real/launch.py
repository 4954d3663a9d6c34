"""Starts the ranks of a run on this machine, watches them, and leaves none behind.

Ranks talk over the loopback interface only; the key-value store that they meet at lives in the launcher, so that last
words survive the rank that spoke them. What a rank does is `python -m real`, or any other command line.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TextIO

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from harness.errors import HaloscopeError, InputError
from real.health import LAUNCHER_VARIABLE, read

GRACE_S = 10.0
"""How long the other ranks may go on once one has failed."""

KILL_S = 3.0
"""How long a rank may take to end after SIGTERM."""

ERROR_PREFIX = "haloscope: error: "
"""Begins the one line that a failing rank leaves on stderr; the launcher raises it instead of passing it on."""

LOOPBACK = "127.0.0.1"


class RankFailed(HaloscopeError):
    """A rank's process failed, was killed, or did not end in time.

    Attributes:
        rank: which one.
        kind: the class name of its error; empty when it left no last words.
    """

    def __init__(self, rank: int, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.rank, self.kind = rank, kind


@dataclass(eq=False)
class _Child:
    """One rank's process; its output goes to a file."""

    rank: int
    process: subprocess.Popen[bytes]
    log: Path
    failed_at: float | None = None

    def last_line(self) -> str:
        """What it wrote last, without the prefix of errors."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].removeprefix(ERROR_PREFIX) if lines else "(it wrote nothing)"


class _Echo:
    """Passes on what rank 0 writes, line by line, except its error."""

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
) -> None:
    """Run `python ARGUMENTS` on `parts` ranks and wait until all have ended well.

    Args:
        threads: CPU threads per rank; 0 shares the cores of this machine among the ranks.
        deadline_s: seconds the whole run may take; None for no limit.
        grace_s: seconds between a rank's failure and the end of the others.
        env: more environment variables for the ranks.
        echo: where rank 0's output lines go; stderr when None.
        poll: called about every 50 ms while the ranks run, and once after.

    Raises:
        InputError: a rank ended with exit code 2.
        RankFailed: a rank failed or was killed, or the deadline passed. The message names the rank and carries the
            last line it wrote.
    """
    with tempfile.TemporaryDirectory(prefix="haloscope-") as folder, _host_store() as (store, port):
        children: list[_Child] = []
        try:
            for rank in range(parts):
                children.append(_spawn(arguments, rank, parts, port, threads, env or {}, Path(folder)))
            said = _Echo(children[0].log, echo or sys.stderr)

            def beat() -> None:
                said.pass_on()
                poll()

            _supervise(children, grace_s, deadline_s, beat)
            _raise_failure(children, store)
        finally:
            _end(children)


@contextmanager
def _host_store() -> Iterator[tuple[Store, int]]:
    """A key-value store that listens on the loopback address only, and its port."""
    listener = socket.create_server((LOOPBACK, 0))
    port: int = listener.getsockname()[1]
    limit = timedelta(seconds=10)
    tcp = TCPStore(LOOPBACK, port, None, True, limit, wait_for_workers=False, master_listen_fd=listener.detach())
    yield PrefixStore("words", PrefixStore("haloscope/0", tcp)), port


def _spawn(
    arguments: Sequence[str], rank: int, parts: int, port: int, threads: int, env: Mapping[str, str], folder: Path
) -> _Child:
    threads = threads or max(1, (os.cpu_count() or 1) // parts)
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(parts),
        "LOCAL_WORLD_SIZE": str(parts),
        "GROUP_RANK": "0",
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # a lost connection is reported by us, in one line
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": str(threads),
        "PYTHONUNBUFFERED": "1",
        LAUNCHER_VARIABLE: "1",
    }
    log = folder / f"rank{rank}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,  # never written to: it closes when this process goes, however it goes
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables, **env},
            process_group=0,  # Ctrl-C reaches the launcher alone, which then ends the ranks
        )
    return _Child(rank, process, log)


def _supervise(children: list[_Child], grace_s: float, deadline_s: float | None, beat: Callable[[], None]) -> None:
    """Return once every rank has ended, or one has failed and the others have had their time."""
    begun = time.monotonic()
    failed_at: float | None = None
    while True:
        alive = []
        for child in children:
            code = child.process.poll()
            if code is None:
                alive.append(child)
            elif code and child.failed_at is None:
                child.failed_at = time.monotonic()
                failed_at = failed_at or child.failed_at
        beat()
        now = time.monotonic()
        if not alive or (failed_at is not None and now - failed_at > grace_s):
            return
        if deadline_s is not None and now - begun > deadline_s:
            ranks = ", ".join(str(c.rank) for c in alive)
            raise RankFailed(alive[0].rank, f"rank {ranks} did not end within {deadline_s:g} s")
        time.sleep(0.05)


def _raise_failure(children: list[_Child], store: Store) -> None:
    """Raise the error of the rank that failed first; return if none did.

    A rank that was killed is to blame before one that says it failed, and that before one that lost another.
    """
    failed = sorted((c for c in children if c.failed_at is not None), key=lambda c: c.failed_at or 0.0)
    killed = [c for c in failed if c.process.returncode < 0]
    if killed:
        first, others = killed[0], [c for c in failed if c is not killed[0]]
        name = signal.Signals(-first.process.returncode).name
        said = [f"last line of rank {c.rank}: {c.last_line()}" for c in (first, *others)]
        raise RankFailed(first.rank, "; ".join([f"rank {first.rank} was killed by {name}", *said]))
    words = [w for w in (read(store, c.rank) for c in failed) if w is not None and w.state == "failed"]
    if words:
        spoken = min(words, key=lambda w: w.at)
        culprit, kind = children[spoken.rank], spoken.kind
    elif failed:
        culprit, kind = failed[0], ""
    else:
        return
    line = culprit.last_line()
    if culprit.process.returncode == 2:
        raise InputError(line)
    raise RankFailed(culprit.rank, line if f"rank {culprit.rank}" in line else f"rank {culprit.rank}: {line}", kind)


def _end(children: list[_Child]) -> None:
    """Make sure that no rank outlives this call."""
    alive = [c for c in children if c.process.poll() is None]
    for child in alive:
        child.process.terminate()
    deadline = time.monotonic() + KILL_S
    for child in alive:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
    for child in children:
        child.process.wait()
        assert child.process.stdin is not None
        child.process.stdin.close()

"""Network namespaces of this process: made, entered by one thread, removed; also those that a dead process left.

Every name is `hs<pid>-<start>-<what>`, where `start` is when the maker started, in hexadecimal ticks of the kernel: so
any process can tell whether the maker is still alive, even where its process id has been reused.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.errors import InputError
from harness.machine import started

FOLDER = Path("/run/netns")  # where `ip netns` keeps them
TOOL_S = 20.0  # seconds that one call of ip or tc may take
_CLONE_NEWNET = 0x40000000  # <sched.h>


def require() -> None:
    """Raise InputError, with one sentence, where this user cannot make namespaces or the tools are missing."""
    if sys.platform != "linux":
        raise InputError("a lab is made of Linux network namespaces; this machine runs another system")
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise InputError(f"a lab needs {' and '.join(missing)}, which are not installed (package iproute2)")
    if os.geteuid() != 0:
        raise InputError("a lab needs root, because it makes network namespaces and shapes their links: use sudo")


def name_of(what: str) -> str:
    """The name of this process's namespace for `what`."""
    return f"hs{os.getpid()}-{started(os.getpid())}-{what}"


def tool(*words: str, batch: Sequence[str] = ()) -> str:
    """Run `ip` or `tc`, with lines for its batch mode if there are any; returns its output.

    Raises:
        InputError: it failed; with the first line of its error message.
    """
    command = [*words, "-batch", "-"] if batch else list(words)
    try:
        done = subprocess.run(
            command,
            input="".join(f"{line}\n" for line in batch),
            capture_output=True,
            text=True,
            timeout=TOOL_S,
            process_group=0,  # Ctrl-C reaches this process only: it must not interrupt a change half-way
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"`{' '.join(words)}` did not end within {TOOL_S:g} s") from None
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if line.strip()), f"exit code {done.returncode}")
        raise InputError(f"this machine cannot build a lab: `{' '.join(words)}` failed: {reason}")
    return done.stdout


@contextmanager
def inside(name: str) -> Iterator[None]:
    """Put the calling thread into a namespace: sockets it opens and processes it starts belong to it permanently.

    Raises:
        InputError: there is no such namespace, or this user may not enter it.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        try:
            there = os.open(FOLDER / name, os.O_RDONLY)
        except FileNotFoundError:
            raise InputError(f"there is no network namespace {name}") from None
        try:
            _enter(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _enter(home)
    finally:
        os.close(home)


def _enter(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise InputError(f"cannot enter a network namespace: {os.strerror(ctypes.get_errno())}")


def made_by(pid: int) -> list[str]:
    """Names of the existing namespaces that a process made, dead or alive."""
    return sorted(entry.name for entry in FOLDER.glob(f"hs{pid}-*")) if FOLDER.is_dir() else []


def stale() -> list[str]:
    """Names of namespaces whose maker is dead."""
    if not FOLDER.is_dir():
        return []
    names = [(entry.name, re.fullmatch(r"hs(\d+)-([0-9a-f]+)-\w+", entry.name)) for entry in FOLDER.iterdir()]
    return sorted(name for name, made in names if made is not None and started(made[1]) != made[2])


def remove(names: Iterable[str]) -> None:
    """Remove namespaces with everything in them; a process that is still there is killed. Absent ones are ignored.

    Raises:
        InputError: one or more could not be removed; the others were.
    """
    failures: list[InputError] = []
    for name in names:
        if not (FOLDER / name).exists():
            continue
        try:
            for pid in tool("ip", "netns", "pids", name).split():
                if int(pid) != os.getpid():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
            tool("ip", "netns", "del", name)
        except InputError as error:
            if (FOLDER / name).exists():  # else another process has removed it
                failures.append(error)
    if failures:
        raise failures[0]

"""The cores that this process may use: with taskset, in a container or in a job, a subset of the machine's."""

from __future__ import annotations

import os
import platform
import socket
import sys
from pathlib import Path

CORES_VARIABLE = "HALOSCOPE_CORES"
"""Set by haloscope's launcher, which pins each rank to some cores: the cores of all ranks, separated by commas."""


def usable_cores() -> list[int]:
    """Numbers of the cores that the ranks of this machine may use together, ascending."""
    if text := os.environ.get(CORES_VARIABLE):
        return [int(core) for core in text.split(",")]
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


CLAIMS = "haloscope-core"
"""Prefix of the names by which runs on one machine know which cores are claimed."""


class Claim:
    """Cores that no other run of this machine claims until this one releases them, or its process ends.

    A claim is a socket with the name of the core, in the kernel's own name space (abstract, Linux): nothing is left on
    disk, and nothing is ever sent. Elsewhere all cores count as free.

    Attributes:
        cores: the claimed ones, ascending.
        taken: usable ones that other runs hold.
    """

    def __init__(self, wanted: int) -> None:
        self.cores, self.taken, self._held = list[int](), list[int](), list[socket.socket]()
        for core in usable_cores():
            if len(self.cores) == wanted:
                break
            (self.cores if self._take(core) else self.taken).append(core)

    def _take(self, core: int) -> bool:
        if sys.platform != "linux":
            return True
        held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            held.bind(f"\0{CLAIMS}-{core}")
        except OSError:
            held.close()
            return False
        self._held.append(held)
        return True

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        """Let other runs have the cores."""
        while self._held:
            self._held.pop().close()


def core_count() -> int:
    """Number of cores that this process and its children may use."""
    return len(usable_cores())


def processor() -> str:
    """The name of this machine's processor, as its operating system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()

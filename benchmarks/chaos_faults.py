"""The faults of `benchmarks.chaos`: what they are, how a process is prepared for them, and what they do to files."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE, ALL = ("loopback", "sim"), ("loopback", "sim", "real")
SIGNALS = {"SIGKILL", "SIGTERM", "SIGSTOP", "SIGINT", "rank SIGKILL", "rank SIGSTOP"}
FAULTS: dict[str, tuple[str, ...]] = {
    "SIGKILL": ALL,
    "SIGTERM": ALL,
    "SIGINT": ALL,
    "SIGSTOP": ALL,
    "rank SIGKILL": ("real",),
    "rank SIGSTOP": ("real",),
    "full disk": ALL,
    "large files refused": ALL,
    "read-only disk": ALL,
    "open files": ALL,
    "memory": HERE,
    "clock": ALL,
    "damage": ALL,
}
"""Name -> modes in which it can happen."""

FILE_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree", "os.chmod")
"""What counts as touching a file (`sys.addaudithook`)."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        at: it happens when the run touches the n-th of its files; 0 for faults that hold from the start.
        at_s: or after so many seconds.
        amount: of what is scarce: bytes, or descriptors; or how far the clock jumps.
        pause_s: after how long a stopped process goes on.
        seed: of what is damaged.
    """

    name: str
    at: int
    at_s: float | None
    amount: int
    pause_s: float
    seed: int

    @classmethod
    def of(cls, name: str, dice: random.Random) -> Fault:
        """A fault of this kind at a random instant."""
        at, at_s = int(2 ** dice.uniform(0, 9)), None
        if name.startswith("rank "):
            at, at_s = 0, dice.uniform(2.0, 20.0)
        amounts = {
            "full disk": int(2 ** dice.uniform(14, 22)), "large files refused": int(2 ** dice.uniform(9, 18)),
            "open files": dice.randint(8, 60), "memory": int(2 ** dice.uniform(25, 29)), 
            "clock": dice.choice((-1, 1)) * dice.randint(10, 10**7),
        }  # fmt: skip
        return cls(name, at, at_s, amounts.get(name, 0), dice.uniform(0.2, 2.0), dice.randrange(2**32))

    def __str__(self) -> str:
        when = f"after {self.at_s:.1f} s" if self.at_s is not None else f"at file {self.at}"
        return f"{self.name}{f' {self.amount}' * bool(self.amount)} {when}"

    @property
    def rank(self) -> bool:
        """Whether it happens to a rank."""
        return self.name.startswith("rank ")

    @property
    def pauses(self) -> bool:
        """Whether the run's first process is stopped for a while."""
        return self.name == "SIGSTOP"

    @property
    def signal(self) -> signal.Signals:
        """The signal that is sent."""
        return signal.Signals[self.name.removeprefix("rank ")]


def arm(fault: Fault, root: Path) -> None:
    """Prepare this process: the fault happens to it, when it touches the n-th file below `root`, or from now on."""
    limits = {"large files refused": resource.RLIMIT_FSIZE, "open files": resource.RLIMIT_NOFILE}
    if fault.name in limits:
        resource.setrlimit(limits[fault.name], (fault.amount, fault.amount))
    if fault.name == "memory":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + fault.amount
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    left, prefix = fault.at, str(root)

    def touched(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        if left > 0 and event in FILE_EVENTS and str(args[0]).startswith(prefix):
            left -= 1
            if not left:
                _strike(fault, root)

    if fault.at and fault.name in {*SIGNALS, "clock", "read-only disk"}:
        sys.addaudithook(touched)


def _strike(fault: Fault, root: Path) -> None:
    if fault.name in SIGNALS:
        os.kill(os.getpid(), fault.signal)
    elif fault.name == "clock":
        now = time.time
        time.time = lambda: now() + fault.amount
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(root / "work")], capture_output=True, check=False)


class Room:
    """The disk of a run. Args: where it is mounted; None where it is an ordinary folder."""

    def __init__(self, place: Path | None) -> None:
        self.place = place

    def restore(self) -> None:
        """Make it as large and as writable as is needed."""
        if self.place is not None:
            subprocess.run(["mount", "-o", "remount,rw,size=256m", str(self.place)], check=True)


@contextmanager
def disk(fault: Fault, place: Path) -> Iterator[Room]:
    """A small file system of its own for faults of disks, where this user may mount one."""
    small = fault.name in ("full disk", "read-only disk") and os.geteuid() == 0
    size = fault.amount if fault.name == "full disk" else 256 << 20
    if small:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "haloscope-chaos", str(place)], check=False
        )
        small = made.returncode == 0
    try:
        yield Room(place if small else None)
    finally:
        if small:
            subprocess.run(["umount", "-l", str(place)], check=True)


def damage(fault: Fault, work: Path) -> bool:
    """Damage one of the files that a run left; returns whether there was one."""
    if fault.name != "damage":
        return False
    dice = random.Random(fault.seed)
    files = sorted(p for p in work.rglob("*") if p.is_file() and p.stat().st_size and not p.name.endswith("lock"))
    if not files:
        return False
    kind = dice.choice(sorted({p.relative_to(work).parts[0] for p in files}))
    path = dice.choice([p for p in files if p.relative_to(work).parts[0] == kind])
    data = bytearray(path.read_bytes())
    how, at = dice.choice(("cut", "flip", "zeros", "empty", "gone", "noise")), dice.randrange(len(data))
    if how == "gone":
        path.unlink()
        return True
    if how in ("cut", "empty"):
        del data[at if how == "cut" else 0 :]
    elif how == "flip":
        data[at] ^= 1 << dice.randrange(8)
    else:
        size = min(len(data) - at, 64)
        data[at : at + size] = bytes(size) if how == "zeros" else dice.randbytes(size)
    path.write_bytes(bytes(data))
    return True

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

HERE, ALL, RANKS = ("loopback", "sim"), ("loopback", "sim", "real"), ("real", "lab")
SIGNALS = {"SIGKILL", "SIGTERM", "SIGSTOP", "SIGINT", "rank SIGKILL", "rank SIGSTOP", "rank clock SIGKILL"}
FAULTS: dict[str, tuple[str, ...]] = {
    "SIGKILL": (*ALL, "lab"),
    "SIGTERM": (*ALL, "lab"),
    "SIGINT": (*ALL, "lab"),
    "SIGSTOP": ALL,
    "rank SIGKILL": RANKS,
    "rank SIGSTOP": RANKS,
    "rank clock": RANKS,
    "rank clock SIGKILL": RANKS,
    "link down": ("lab",),
    "link flaps": ("lab",),
    "link lost": ("lab",),
    "full disk": ALL,
    "large files refused": ALL,
    "read-only disk": ALL,
    "open files": ALL,
    "memory": HERE,
    "clock": ALL,
    "damage": ALL,
}
"""Name -> modes in which it can happen. `rank clock SIGKILL`: one rank's clock jumps, another rank is killed."""

HARMLESS = frozenset({"SIGSTOP", "clock", "rank clock", "link down"})
"""Faults that a run has to survive without an error."""

LOST_S = 1e4
"""How long a link is down that does not come back within a run."""

FILE_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree", "os.chmod")
"""What counts as touching a file (`sys.addaudithook`)."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        at: it happens when the run touches the n-th of its files; 0 for faults that hold from the start.
        at_s: or after so many seconds.
        epoch: or when a checkpoint after so many epochs is there.
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
    epoch: int = 0

    @classmethod
    def of(cls, name: str, dice: random.Random) -> Fault:
        """A fault of this kind at a random instant."""
        at, at_s, epoch = int(2 ** dice.uniform(0, 9)), None, 0
        if name.startswith(("rank ", "link ")):
            at, at_s = 0, dice.uniform(2.0, 20.0)
            if name != "rank clock" and dice.random() < 0.5:
                at_s, epoch = None, dice.randint(1, 8)
        amounts = {
            "full disk": int(2 ** dice.uniform(14, 22)), "large files refused": int(2 ** dice.uniform(9, 18)),
            "open files": dice.randint(8, 60), "memory": int(2 ** dice.uniform(25, 29)), 
            "clock": dice.choice((-1, 1)) * dice.randint(10, 10**7),
        }  # fmt: skip
        amount = amounts["clock" if "clock" in name else name] if "clock" in name or name in amounts else 0
        return cls(name, at, at_s, amount, dice.uniform(0.2, 2.0), dice.randrange(2**32), epoch)

    def __str__(self) -> str:
        when = f"after {self.at_s:.1f} s" if self.at_s is not None else f"at file {self.at}"
        when = f"after epoch {self.epoch}" if self.epoch else when
        return f"{self.name}{f' {self.amount}' * bool(self.amount)} {when}"

    @property
    def rank(self) -> bool:
        """Whether it happens to a rank."""
        return self.name.startswith("rank ")

    @property
    def link(self) -> bool:
        """Whether it happens to a link of a lab."""
        return self.name.startswith("link ")

    @property
    def outages(self) -> list[tuple[float, float]]:
        """For how many seconds the link is down, and then up, each time."""
        dice = random.Random(self.seed)
        if self.name == "link lost":
            return [(LOST_S, 0.0)]
        return [
            (dice.uniform(0.1, 1.0) * self.pause_s, dice.uniform(0.2, 2.0))
            for _ in range(dice.randint(2, 5) if self.name == "link flaps" else 1)
        ]

    @property
    def pauses(self) -> bool:
        """Whether the run's first process is stopped for a while."""
        return self.name == "SIGSTOP"

    @property
    def signal(self) -> signal.Signals:
        """The signal that is sent."""
        return signal.Signals[self.name.split()[-1]]


def arm(fault: Fault, root: Path, parts: int) -> None:
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
    if fault.name.startswith("rank clock"):
        _set_clock(fault, root, parts)


CLOCK = """\
import os, time

if os.environ.get("RANK") == "{rank}":
    now, begun = time.time, time.monotonic()
    time.time = lambda: now() + {amount} * (time.monotonic() - begun > {after})
"""
"""What the interpreter of every rank runs first; the clock of one of them jumps."""


def clock_rank(fault: Fault, parts: int) -> int:
    """The rank whose clock jumps."""
    return fault.seed % parts


def _set_clock(fault: Fault, root: Path, parts: int) -> None:
    """Let the clock of a rank that is started from here jump after some seconds."""
    place = root / "site"
    place.mkdir(exist_ok=True)
    after = fault.at_s if fault.at_s is not None else fault.pause_s
    text = CLOCK.format(rank=clock_rank(fault, parts), amount=fault.amount, after=after)
    (place / "sitecustomize.py").write_text(text)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])


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

"""One rank's process as its launcher sees it: its output, its activity, how it ended.

A rank that a signal killed or stopped cannot leave last words in the store, so its launcher writes them: the surviving
ranks name it and its phase within a moment, instead of after a timeout.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from torch.distributed import Store  # type: ignore[attr-defined]

from real.launch._fork_server import RankProcess
from real.launch._memory_kills import memory_kills
from real.rank import place
from real.rank.health import ERROR_PREFIX, Words, leave_words, read_words, withdraw_words


class Exit(NamedTuple):
    """How one rank of a failed run ended.

    Attributes:
        code: its exit code; negative for a signal.
        at: when it was seen to have ended (`time.monotonic`).
        line: the last line it wrote, without the prefix of errors; empty when it wrote nothing.
    """

    rank: int
    code: int
    at: float
    line: str


COUNT_S = 1.0
"""How often the kernel's kills are counted."""


@dataclass(eq=False)
class Child:
    """One rank's process; its output goes to a file.

    Attributes:
        place: the file with its current activity (`real.rank.place`).
        ended_at: when its end was noticed, if it ended by itself (`time.monotonic`); None before.
        stopped: whether a signal has stopped it.
        memory_kills, counted_at: the kernel's count of processes that it killed for want of memory, the last time and
            the time before, `COUNT_S` earlier: a process may take a moment to end after it was counted.
        out_of_memory: whether it was probably this one: SIGKILL ended it, and the count has just risen.
    """

    rank: int
    process: RankProcess
    log: Path
    place: Path
    ended_at: float | None = None
    stopped: bool = False
    memory_kills: list[int] = field(default_factory=lambda: 2 * [memory_kills()])
    counted_at: float = field(default_factory=time.monotonic)
    out_of_memory: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended by itself, with an error."""
        return self.ended_at is not None and self.process.returncode != 0

    @property
    def killed(self) -> bool:
        """Whether a signal ended it that this launcher did not send."""
        return self.failed and self.process.returncode < 0

    def poll(self, store: Store) -> None:
        """Check whether it still runs, and leave its last words for the other ranks where it cannot."""
        if self.ended_at is not None:
            return
        now = time.monotonic()
        code = self.process.poll()
        if code is None and now - self.counted_at > COUNT_S:
            self.memory_kills, self.counted_at = [self.memory_kills[1], memory_kills()], now
        if code is not None:
            self.ended_at = now
            self.out_of_memory = code == -signal.SIGKILL and memory_kills() > self.memory_kills[0]
            if code and (code < 0 or read_words(store, self.rank) is None):
                leave_words(store, Words(self.rank, "killed", self.fate()))
        elif self.stopped != (stopped := _stopped(self.process.pid)):
            self.stopped = stopped
            if stopped:
                leave_words(store, Words(self.rank, "stopped", self.fate()))
            else:
                withdraw_words(store, self.rank)
        elif stopped and read_words(store, "stopped") is None:  # those of another rank, which goes on
            leave_words(store, Words(self.rank, "stopped", self.fate()))

    def fate(self) -> str:
        """How it ended or stopped, and where; continues a sentence that begins with "rank 1"."""
        where, code = place.read_activity(self.place), self.process.returncode
        if self.ended_at is None:
            return f"is stopped by a signal {where}" if self.stopped else f"had not ended {where}"
        if self.out_of_memory:
            return f"was killed by the kernel for want of memory (SIGKILL) {where}"
        return f"was killed by {_name(-code)} {where}" if code < 0 else f"ended with exit code {code} {where}"

    def last_line(self) -> str:
        """The last line it wrote, without the prefix of errors; empty when it wrote nothing."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].removeprefix(ERROR_PREFIX) if lines else ""

    def last_words(self, store: Store) -> str:
        """One sentence on a rank that ended because of another one."""
        words = read_words(store, self.rank)
        if words is not None and words.state in ("lost", "failed"):
            return str(words)
        line = self.last_line()
        return f"last line of rank {self.rank}: {line}" if line else f"rank {self.rank} {self.fate()}"

    def exit(self) -> Exit:
        """How it ended; call once it has."""
        at = self.ended_at if self.ended_at is not None else time.monotonic()
        code = self.process.poll()
        return Exit(self.rank, -signal.SIGKILL if code is None else code, at, self.last_line())


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _stopped(pid: int) -> bool:
    """Whether a signal has stopped a process; False where the kernel does not report it."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] == b"T"
    except OSError:
        return False

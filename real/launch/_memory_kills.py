"""How often the kernel has killed a process for want of memory: the only trace that such a kill leaves to others.

A process that is killed so ends by SIGKILL, as by anybody's. The kernel counts these kills for each control group of
processes, and for the machine.
"""

from __future__ import annotations

from pathlib import Path

GROUPS, OF_PROCESS, OF_MACHINE = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/vmstat")


def memory_kills() -> int:
    """The counts of this process's control group and of the machine, added; 0 where the kernel does not tell.

    Only whether it rises means anything. A process may be in a group of its own, whose count is not seen from here.
    """
    total = 0
    for file in (*_files(), OF_MACHINE):
        try:
            lines = [line.split() for line in file.read_text().splitlines()]
        except OSError:
            continue
        total += sum(int(words[1]) for words in lines if len(words) == 2 and words[0] == "oom_kill")
    return total


def _files() -> list[Path]:
    """Where version 2 and version 1 of control groups keep the count."""
    try:
        lines = [line.split(":", 2) for line in OF_PROCESS.read_text().splitlines()]
    except OSError:
        return []
    found = [GROUPS / place.lstrip("/") / "memory.events" for number, _, place in lines if number == "0"]
    return found + [
        GROUPS / "memory" / place.lstrip("/") / "memory.oom_control"
        for _, kinds, place in lines
        if "memory" in kinds.split(",")
    ]

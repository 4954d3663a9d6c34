"""Links of a run's lab that go down and come up again, for `benchmarks.chaos`."""

from __future__ import annotations

import random
import subprocess
import time

from benchmarks.chaos_faults import Fault
from real.lab import made_by, remove, stale


def remove_dead(pids: list[int]) -> list[str]:
    """Remove what killed processes left of their labs, as `doctor --clean` does; returns what is still there."""
    mine = tuple(f"hs{pid}-" for pid in pids)
    remove(name for name in stale() if name.startswith(mine))
    return [name for pid in pids for name in made_by(pid)]


class Outages:
    """Takes one link of the lab of a run down and up, at the switch or at its host.

    Attributes:
        count: how often it was down so far.
    """

    def __init__(self, fault: Fault, pid: int, hosts: int) -> None:
        dice = random.Random(fault.seed)
        self.pid, self.host, self.at_host = pid, dice.randrange(hosts), dice.random() < 0.5
        self.plan = [change for down, up in fault.outages for change in (("down", down), ("up", up))]
        self.due, self.count = 0.0, 0

    def poll(self) -> None:
        """Do what is due; call it often, from when the fault begins."""
        if self.plan and time.monotonic() >= self.due and self._set(self.plan[0][0]):
            change, seconds = self.plan.pop(0)
            self.due = time.monotonic() + seconds
            self.count += change == "down"

    def _set(self, change: str) -> bool:
        """Returns False where the lab is not there yet, or no more."""
        what = f"{self.host}" if self.at_host else "switch"
        names = [name for name in made_by(self.pid) if name.endswith(f"-{what}")]
        link = "lab0" if self.at_host else f"port{self.host}"
        command = ["ip", "-n", *names, "link", "set", link, change]
        return bool(names) and not subprocess.run(command, capture_output=True, check=False).returncode

    def __str__(self) -> str:
        return f"the link of host {self.host} was down {self.count} times"

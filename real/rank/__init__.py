"""One rank of a measured run: effects on torch.distributed, checked against the other ranks, timed by component.

`run` is the door. Open rooms beside it: `connection` (the process group), `health` (last words), `place` (where a rank
is), `spans` (what a rank did when).
"""

from real.rank._clocks import overhead
from real.rank._driver import run

__all__ = [
    "overhead",
    "run",
]

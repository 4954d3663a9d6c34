"""One rank of a measured run: effects on torch.distributed, checked against the other ranks, timed by component.

`run_program` is the entry point. Public modules beside it: `connection` (the process group), `health` (how ranks report
why they ended), `cuda_graphs` (epochs recorded as graphs), `place` (the current activity of a rank, for its launcher),
`spans` (what a rank did when).
"""

from real.rank._clocks import overhead
from real.rank._driver import run_program

__all__ = [
    "overhead",
    "run_program",
]

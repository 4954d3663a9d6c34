"""The network: transfers that share directed links max-min fairly, on SimPy's clock.

`FluidNetwork` is the door for simulations, `solve` and `schedule` for transfers that are known beforehand. How
bandwidth becomes seconds stands in `docs/network.md`, with the file of each step.
"""

from sims.network._flows import Schedule, route_table, run_flows, schedule, schedule_lanes, solve
from sims.network._fluid import EXACT_FLOWS
from sims.network._network import FluidNetwork, call_late
from sims.network._rows import Rows

__all__ = [
    "EXACT_FLOWS",
    "FluidNetwork",
    "Rows",
    "Schedule",
    "call_late",
    "route_table",
    "run_flows",
    "schedule",
    "schedule_lanes",
    "solve",
]

"""The network: flows that share directed links max-min fairly, on SimPy's clock.

Simulations use `FluidNetwork`; `fair_shares` and `schedule` are for flows that are known beforehand. `docs/network.md`
derives times from bandwidths and names the file of each step.
"""

from sims.network._completions import EXACT_FLOWS
from sims.network._fair_share import fair_shares
from sims.network._network import FluidNetwork, call_late
from sims.network._routes import RouteTable, route_table
from sims.network._schedule import Schedule, run_flows, schedule, schedule_by_segments

__all__ = [
    "EXACT_FLOWS",
    "FluidNetwork",
    "RouteTable",
    "Schedule",
    "call_late",
    "fair_shares",
    "route_table",
    "run_flows",
    "schedule",
    "schedule_by_segments",
]

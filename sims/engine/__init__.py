"""The simulated driver: rank programs on SimPy clocks, their operators priced by a ledger, their effects in flight.

Knows clusters, devices, network and transports; who wants to look on implements its `Observer`.
"""

from sims.engine._clock import SimClock
from sims.engine._driver import Simulation, Simulator, simulate, simulate_placed
from sims.engine._ledger import Ledger, Prices
from sims.engine._observer import Observer

__all__ = [
    "Ledger",
    "Observer",
    "Prices",
    "SimClock",
    "Simulation",
    "Simulator",
    "simulate",
    "simulate_placed",
]

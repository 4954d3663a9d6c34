"""The simulated driver: rank programs on SimPy clocks, their operators priced by a ledger, their pending effects.

Builds on clusters, devices, network and transports. Code that follows a simulation implements `Observer`.
"""

from sims.engine._clock import SimClock
from sims.engine._driver import Simulation, Simulator, simulate
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
]

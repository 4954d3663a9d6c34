"""Uses of the model: runs by config, variants of clusters, raw flows, calibrated profiles, notes on results.

The top layer of `sims`: `harness.running` calls `open_driver` for `--mode sim`.
"""

from sims.study._execute import SimulatedCluster, open_driver
from sims.study._remarks import idle_links, quantities
from sims.study._scenarios import run_file
from sims.study._variants import Variant, variants
from sims.study.explorer import Explorer, RecordedRun, State

__all__ = [
    "Explorer",
    "RecordedRun",
    "SimulatedCluster",
    "State",
    "Variant",
    "idle_links",
    "open_driver",
    "quantities",
    "run_file",
    "variants",
]

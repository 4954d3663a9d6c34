"""What people ask of the model: runs by config, variants of clusters, raw flows, calibrated profiles, remarks.

The top of `sims`: `open_driver` is what `harness.running` calls for `--mode sim`.
"""

from sims.study._execute import SimulatedCluster, open_driver
from sims.study._remarks import idle_links, quantities
from sims.study._scenarios import run_file
from sims.study._variants import variants

__all__ = [
    "SimulatedCluster",
    "idle_links",
    "open_driver",
    "quantities",
    "run_file",
    "variants",
]

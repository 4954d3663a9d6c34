"""Uses of the model: runs by config, variants of clusters, raw flows, calibrated profiles, notes on results.

The top layer of `sims`: `harness.running` calls `open_driver` for `--mode sim`.
"""

from sims.study._execute import SimulatedCluster, open_driver
from sims.study._recordings import epochs_to_record, kept_recording
from sims.study._remarks import idle_links, quantities, source_shares
from sims.study._scenarios import run_file
from sims.study._variants import check_links, variants

__all__ = [
    "SimulatedCluster",
    "check_links",
    "epochs_to_record",
    "idle_links",
    "kept_recording",
    "open_driver",
    "quantities",
    "run_file",
    "source_shares",
    "variants",
]

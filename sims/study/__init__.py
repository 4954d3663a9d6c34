"""Uses of the model: runs by config, variants of clusters, raw flows, calibrated profiles, notes on results.

The top layer of `sims`: `harness.running` calls `open_driver` for `--mode sim`.
"""

from sims.study._execute import SimulatedCluster, open_driver
from sims.study._recordings import kept_recording
from sims.study._remarks import idle_links, link_kind, quantities, source_shares
from sims.study._retimed import Retimed
from sims.study._scenarios import run_file
from sims.study._variants import Variant, check_links, variants
from sims.study.explorer import Explorer, LinkSetting, RecordedRun

__all__ = [
    "Explorer",
    "RecordedRun",
    "Retimed",
    "SimulatedCluster",
    "LinkSetting",
    "Variant",
    "check_links",
    "idle_links",
    "kept_recording",
    "link_kind",
    "open_driver",
    "quantities",
    "run_file",
    "source_shares",
    "variants",
]

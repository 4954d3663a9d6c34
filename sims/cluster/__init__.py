"""Clusters: hosts, devices, links and transports from TOML files; placement of ranks; routes.

Contains `presets/*.toml` and the syntax of one-line changes to them. Times are computed elsewhere.
"""

from typing import TYPE_CHECKING

from harness.lazily import lazy_names
from sims.cluster._cluster import ACKNOWLEDGED_BYTES, FRAMING, SHAPED, Cluster, dimension_of
from sims.cluster._described import is_described
from sims.cluster._file import LINKS, ClusterFile
from sims.cluster._load import file_of_line, known_clusters, load_cluster
from sims.cluster._overrides import varied
from sims.cluster._software import OPERATIONS, TRANSPORTS, HostMemory
from sims.cluster._stragglers import Stragglers

if TYPE_CHECKING:
    from sims.cluster._placement import NO_LINK, Placement, place
else:  # numba
    __getattr__ = lazy_names(__name__, {"_placement": ("NO_LINK", "Placement", "place")})

__all__ = [
    "ACKNOWLEDGED_BYTES",
    "SHAPED",
    "Cluster",
    "ClusterFile",
    "FRAMING",
    "HostMemory",
    "LINKS",
    "NO_LINK",
    "OPERATIONS",
    "Placement",
    "Stragglers",
    "TRANSPORTS",
    "dimension_of",
    "file_of_line",
    "is_described",
    "known_clusters",
    "load_cluster",
    "place",
    "varied",
]

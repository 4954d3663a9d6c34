"""Clusters: hosts, devices, links and transports as TOML files describe them; ranks placed on them; routes.

Owns `presets/*.toml` and what may be changed of them on one line. Computes no time.
"""

from sims.cluster._cluster import LINKS, Cluster
from sims.cluster._load import known_clusters, load_cluster
from sims.cluster._overrides import varied
from sims.cluster._placement import NO_LINK, Placement, place
from sims.cluster._software import OPERATIONS, TRANSPORTS, HostMemory
from sims.cluster._stragglers import Stragglers

__all__ = [
    "Cluster",
    "HostMemory",
    "LINKS",
    "NO_LINK",
    "OPERATIONS",
    "Placement",
    "Stragglers",
    "TRANSPORTS",
    "known_clusters",
    "load_cluster",
    "place",
    "varied",
]

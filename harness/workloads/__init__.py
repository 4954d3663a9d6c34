"""Workloads: partitioned graphs of which only counts are known, from TOML descriptions and closed forms.

Implements `--dataset workload:NAME`. Runs on workloads use shapes only; see `docs/workloads.md`.
"""

from harness.workloads._build import load_workload
from harness.workloads._closed_form import Degrees, hash_boundary
from harness.workloads._description import Description, is_workload, read_description, shipped
from harness.workloads._metis import (
    METIS_LAW,
    RANDOM_LAW,
    RESIDUAL,
    MetisLaw,
    halo_spread,
    metis_cut_share,
    metis_edges,
)
from harness.workloads._workload import Workload

__all__ = [
    "METIS_LAW",
    "RANDOM_LAW",
    "RESIDUAL",
    "Degrees",
    "Description",
    "MetisLaw",
    "Workload",
    "metis_cut_share",
    "halo_spread",
    "hash_boundary",
    "is_workload",
    "load_workload",
    "metis_edges",
    "read_description",
    "shipped",
]

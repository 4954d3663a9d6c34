"""Partitioned graphs of which only counts are known: descriptions in TOML, closed forms, and what is built from them.

Owns `--dataset workload:NAME`. Runs on workloads follow shapes only; see `docs/workloads.md`.
"""

from harness.workloads._build import load_workload
from harness.workloads._closed_form import Degrees, hash_boundary
from harness.workloads._description import Description, is_workload, read_description, shipped
from harness.workloads._workload import Workload

__all__ = [
    "Degrees",
    "Description",
    "Workload",
    "hash_boundary",
    "is_workload",
    "load_workload",
    "read_description",
    "shipped",
]

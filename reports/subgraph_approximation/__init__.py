"""Subgraph approximation: all its tables and figures by key."""

from reports.subgraph_approximation._figures import FIGURES
from reports.subgraph_approximation._tables import TABLES

__all__ = [
    "FIGURES",
    "TABLES",
]

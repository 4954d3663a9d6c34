"""EC-Graph: all its tables and figures by key."""

from reports.ec_graph._tables import FIGURES, TABLES

__all__ = [
    "FIGURES",
    "TABLES",
]

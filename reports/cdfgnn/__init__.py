"""CDFGNN: all its tables and figures by key."""

from reports.cdfgnn._tables import FIGURES, TABLES

__all__ = [
    "FIGURES",
    "TABLES",
]

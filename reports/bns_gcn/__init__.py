"""BNS-GCN (Wan et al.): all its tables and figures by key."""

from __future__ import annotations

from collections.abc import Callable

from reports.bns_gcn._curves import figure7, figure9
from reports.bns_gcn._edges import table9
from reports.bns_gcn._figures import figure3, figure4, figure5, figure6, figure8
from reports.bns_gcn._papers import table6
from reports.bns_gcn._parts import table1, table2, table3, table8
from reports.bns_gcn._scores import table4, table5, table7, table13
from reports.bns_gcn._times import table10, table11, table12
from reports.core.context import Context
from reports.core.table import PaperTable, Plot

TABLES: dict[str, Callable[[Context], PaperTable]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "table5": table5,
    "table6": table6,
    "table7": table7,
    "table8": table8,
    "table9": table9,
    "table10": table10,
    "table11": table11,
    "table12": table12,
    "table13": table13,
}
FIGURES: dict[str, Callable[[Context], Plot]] = {
    "figure3": figure3,
    "figure4": figure4,
    "figure5": figure5,
    "figure6": figure6,
    "figure7": figure7,
    "figure8": figure8,
    "figure9": figure9,
}

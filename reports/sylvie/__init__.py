"""Sylvie (Zhang et al.): all its tables and figures by key, and the authors' public logs."""

from __future__ import annotations

from collections.abc import Callable

from reports.core.context import Context
from reports.core.table import PaperTable, Plot
from reports.sylvie._curves import figure8, figure9
from reports.sylvie._figures import figure1, figure5, figure6, figure10
from reports.sylvie._logs import (
    compute_logged,
    epochs_logged,
    halo_logged,
    memory_logged,
    reduce_logged,
    section5,
)
from reports.sylvie._one_server import figure2, figure7
from reports.sylvie._scores import table1, table2, table4
from reports.sylvie._times import table3

TABLES: dict[str, Callable[[Context], PaperTable]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "section5": section5,
    "logs-epochs": epochs_logged,
    "logs-halo": halo_logged,
    "logs-reduce": reduce_logged,
    "logs-compute": compute_logged,
    "logs-memory": memory_logged,
}
FIGURES: dict[str, Callable[[Context], Plot]] = {
    "figure1": figure1,
    "figure2": figure2,
    "figure5": figure5,
    "figure6": figure6,
    "figure7": figure7,
    "figure8": figure8,
    "figure9": figure9,
    "figure10": figure10,
}

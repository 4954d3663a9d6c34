"""Sources of graphs: npz files, generated graphs, fitted stand-ins, raw files of public collections, and their splits.

Implements `--dataset` and `--split`. `load` and `training_graph` are the entry points; the readers of each format are
private.
"""

from harness.datasets._catalog import download, known_datasets, load, require_trainable, source_state, training_graph
from harness.datasets._npz import write_graph
from harness.datasets._recipe import PRESETS, Recipe
from harness.datasets._sources import GRAPH_SOURCES, GraphSource, data_folder, size_of
from harness.datasets._standins import STANDINS, FitRecord, FittedScore, StandIn, read_standin, read_standins

__all__ = [
    "FitRecord",
    "FittedScore",
    "GraphSource",
    "PRESETS",
    "Recipe",
    "GRAPH_SOURCES",
    "STANDINS",
    "StandIn",
    "data_folder",
    "download",
    "known_datasets",
    "load",
    "read_standin",
    "read_standins",
    "require_trainable",
    "size_of",
    "source_state",
    "training_graph",
    "write_graph",
]

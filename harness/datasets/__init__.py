"""Sources of graphs: npz files, synthetic stand-ins, raw files of public collections, and their splits.

Implements `--dataset` and `--split`. `load` and `training_graph` are the entry points; the readers of each format are
private.
"""

from harness.datasets._catalog import known_datasets, load, require_trainable, source_state, training_graph
from harness.datasets._recipe import PRESETS
from harness.datasets._sources import GRAPH_SOURCES, GraphSource, data_folder

__all__ = [
    "GraphSource",
    "PRESETS",
    "GRAPH_SOURCES",
    "data_folder",
    "known_datasets",
    "load",
    "require_trainable",
    "source_state",
    "training_graph",
]

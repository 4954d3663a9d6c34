"""Sources of graphs: npz files, synthetic stand-ins, raw files of public collections, and their splits.

Implements `--dataset` and `--split`. `load` and `training_graph` are the entry points; the readers of each format are
private.
"""

from harness.datasets._catalog import data_folder, known_datasets, load, require_trainable, source_state, training_graph
from harness.datasets._recipe import PRESETS

__all__ = [
    "PRESETS",
    "data_folder",
    "known_datasets",
    "load",
    "require_trainable",
    "source_state",
    "training_graph",
]

"""Where graphs come from: npz files, synthetic stand-ins, raw files of public collections, and their splits."""

from harness.datasets.catalog import known, load, require_trainable, source_state, training_graph

__all__ = ["known", "load", "require_trainable", "source_state", "training_graph"]

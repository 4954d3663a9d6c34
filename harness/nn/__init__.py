"""Models: graph convolutions on (own, halo) rows, stacks of them, loss, optimizer, and the neighbour sums below them.

Contains all arithmetic of a model; independent of ranks, without communication. Methods put exchanges between layers.
"""

from harness.nn._aggregate import aggregate, aggregate_weighted
from harness.nn._foreign import BipartiteConv
from harness.nn._layers import LEAKY_SLOPE, Aggregation, Conv, Dense, GATConv, GCNConv, SAGEConv
from harness.nn._loss import counts, micro_f1, summed_loss, training_loss
from harness.nn._messages import add_at, at_sources, edge_rows
from harness.nn._models import GNN, MODELS, Drop, Order, build_model, copy_on_meta, model_factory
from harness.nn._optimizer import adam

__all__ = [
    "BipartiteConv",
    "Aggregation",
    "Conv",
    "Dense",
    "Drop",
    "GATConv",
    "GCNConv",
    "GNN",
    "LEAKY_SLOPE",
    "MODELS",
    "Order",
    "SAGEConv",
    "adam",
    "add_at",
    "aggregate",
    "aggregate_weighted",
    "at_sources",
    "build_model",
    "copy_on_meta",
    "counts",
    "edge_rows",
    "micro_f1",
    "model_factory",
    "summed_loss",
    "training_loss",
]

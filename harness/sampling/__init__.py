"""What a rank draws: neighbours and the mini-batches made of them, EC-Graph-S's fixed edges, boundary nodes by name."""

from harness.sampling._boundary import SAMPLERS, BoundaryDraw, BoundarySampler
from harness.sampling._edge_sample import EVERYTHING, Sample, sample_layers
from harness.sampling._minibatch import NeighbourSampler, batch_logits, batch_part, batches
from harness.sampling._neighbours import sample_neighbours
from harness.sampling._variance import (
    column_squares,
    fixed_variance,
    merging_bias,
    neighbour_variance,
    poisson_variance,
    replacement_variance,
)

__all__ = [
    "BoundaryDraw",
    "BoundarySampler",
    "EVERYTHING",
    "NeighbourSampler",
    "SAMPLERS",
    "Sample",
    "batch_logits",
    "batch_part",
    "batches",
    "column_squares",
    "fixed_variance",
    "merging_bias",
    "neighbour_variance",
    "poisson_variance",
    "replacement_variance",
    "sample_layers",
    "sample_neighbours",
]

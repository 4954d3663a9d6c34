"""What a rank draws: neighbours and the mini-batches made of them, EC-Graph-S's fixed edges, boundary nodes by name."""

from harness.sampling._boundary import SAMPLERS, BoundaryDraw, BoundarySampler
from harness.sampling._edge_sample import EVERYTHING, Sample, sample_layers
from harness.sampling._minibatch import NeighbourSampler, batch_logits, batch_part, batches

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
    "sample_layers",
]

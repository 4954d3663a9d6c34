"""Neighbour sampling: the sampler, its mini-batches, and EC-Graph-S's fixed sample of edges."""

from harness.sampling._edge_sample import EVERYTHING, Sample, sample_layers
from harness.sampling._minibatch import NeighbourSampler, batch_logits, batch_part, batches

__all__ = [
    "EVERYTHING",
    "NeighbourSampler",
    "Sample",
    "batch_logits",
    "batch_part",
    "batches",
    "sample_layers",
]

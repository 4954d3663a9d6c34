"""What a rank draws: neighbours and mini-batches, EC-Graph-S's fixed edges, boundary nodes by name, subgraphs."""

from harness.sampling._boundary import SAMPLERS, BoundaryDraw, BoundarySampler
from harness.sampling._clusters import Clusters
from harness.sampling._edge_sample import EVERYTHING, Sample, sample_layers
from harness.sampling._induced import Induced, induced
from harness.sampling._minibatch import NeighbourSampler, batch_logits, batch_part, batches
from harness.sampling._saint import Counts, SaintKind, SubgraphSampler, pre_sample

__all__ = [
    "BoundaryDraw",
    "BoundarySampler",
    "Clusters",
    "Counts",
    "EVERYTHING",
    "Induced",
    "NeighbourSampler",
    "SAMPLERS",
    "SaintKind",
    "Sample",
    "SubgraphSampler",
    "batch_logits",
    "batch_part",
    "batches",
    "induced",
    "pre_sample",
    "sample_layers",
]

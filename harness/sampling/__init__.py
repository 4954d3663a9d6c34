"""What a rank draws: neighbours and the mini-batches made of them, EC-Graph-S's fixed edges, boundary nodes by name.

Of a partitioned graph, `Neighbours` fetches lists and rows from the ranks that own them, and a `SampledBatch` of
weighted layers is what every sampling method trains on.
"""

from harness.sampling._boundary import SAMPLERS, BoundaryDraw, BoundarySampler
from harness.sampling._clusters import Clusters
from harness.sampling._columns import MatrixRows, Normalise, matrix_entries
from harness.sampling._edge_sample import EVERYTHING, Sample, sample_layers
from harness.sampling._edge_wire import EdgeNeighbours
from harness.sampling._induced import Induced, induced_subgraph
from harness.sampling._lists import addresses, node_of
from harness.sampling._minibatch import NeighbourSampler, batch_logits, batch_part, batches
from harness.sampling._neighbours import sample_neighbours
from harness.sampling._remote import Lists, Neighbours
from harness.sampling._saint import SaintKind, SubgraphCounts, SubgraphSampler, pre_sample
from harness.sampling._sampled import (
    Hops,
    SampledBatch,
    SampledLayer,
    draw_hops,
    needs_degrees,
    neighbour_weights,
    no_edges,
    sampled_layers,
)
from harness.sampling._shared import SharedNodes, SharedTargets, shared_rows
from harness.sampling._stored import Reached, Stored, reached
from harness.sampling._table import column_norms, gather_by_number
from harness.sampling._variance import (
    column_squares,
    fixed_variance,
    neighbour_variance,
    poisson_variance,
    replacement_variance,
)

__all__ = [
    "SampledBatch",
    "BoundaryDraw",
    "BoundarySampler",
    "Clusters",
    "SubgraphCounts",
    "EVERYTHING",
    "EdgeNeighbours",
    "Hops",
    "Induced",
    "Lists",
    "MatrixRows",
    "NeighbourSampler",
    "Neighbours",
    "Reached",
    "SAMPLERS",
    "Sample",
    "SampledLayer",
    "SaintKind",
    "Stored",
    "SubgraphSampler",
    "Normalise",
    "SAMPLERS",
    "Sample",
    "SampledLayer",
    "SharedNodes",
    "SharedTargets",
    "addresses",
    "batch_logits",
    "batch_part",
    "batches",
    "column_norms",
    "column_squares",
    "draw_hops",
    "induced_subgraph",
    "fixed_variance",
    "gather_by_number",
    "matrix_entries",
    "needs_degrees",
    "neighbour_variance",
    "neighbour_weights",
    "no_edges",
    "node_of",
    "pre_sample",
    "reached",
    "poisson_variance",
    "replacement_variance",
    "sample_layers",
    "sample_neighbours",
    "sampled_layers",
    "shared_rows",
]

"""METIS' parts of EC-Graph's graphs: of the real topology where it is on disk, otherwise from printed counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from harness.partition.edge import assign, quality
from harness.workloads import METIS_LAW, hash_boundary, metis_cut_share
from reports.bns_gcn.testbed import shape
from reports.core.load import published, select, value
from reports.ec_graph._times import TOPOLOGIES, Machines, on_disk, timed_counts, workload

PARTITIONER = "metis-cut"  # METIS with the edge-cut objective, DGL's default
METIS_COUNTS = (
    "METIS (the edge-cut objective, balancing own nodes): made of the real topologies of Cora and Pubmed where on "
    "disk. Boundary nodes of Reddit and ogbn-products are those that BNS-GCN's Table 8 prints for 8 and 10 parts, per "
    f"node, in proportion to parts less one; {METIS_LAW}"
)


@dataclass(frozen=True)
class CutCounts:
    """What a partition cuts: mean boundary nodes of a part, and the share of all edges."""

    boundary: float
    edges: float


def cut_by_metis(bed: Machines) -> CutCounts:
    """METIS' cut of a data set on the machines; of one that is neither on disk nor printed, that of hash."""
    topology, counts = TOPOLOGIES.get(bed.dataset, ""), timed_counts(bed.dataset, printed=bed.printed)
    if on_disk(topology):
        return _made(topology, bed.parts)
    table = select(published("bns-gcn-table8"), dataset=bed.dataset, setting="METIS partition")
    if table.empty:
        return CutCounts(hash_boundary(counts["vertices"], bed.degrees(), bed.parts), 1 - 1 / bed.parts)
    total, parts = value(table, metric="boundary_nodes"), int(table["partitions"].iloc[0])
    per_node = total / shape(bed.dataset)[0] * (bed.parts - 1) / (parts - 1)
    share = float(metis_cut_share(np.array([per_node]), bed.parts)[0])
    return CutCounts(per_node * counts["vertices"] / bed.parts, share)


def metis_workload(bed: Machines) -> str:
    """A data set in METIS' parts, as a description of counts."""
    if on_disk(TOPOLOGIES.get(bed.dataset, "")):
        return workload(bed.context, bed.dataset, partitioner=PARTITIONER)
    return workload(bed.context, bed.dataset, printed=bed.printed, boundary=round(cut_by_metis(bed).boundary))


@cache
def _made(topology: str, parts: int) -> CutCounts:
    from harness import datasets

    graph = datasets.load(topology)
    found = quality(graph, assign(graph, PARTITIONER, parts, 0), parts)
    return CutCounts(found.volume / parts, found.edge_cut / sum(found.edges))

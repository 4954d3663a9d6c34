"""The memory that making the parts of an edge cut takes at most, from counts that are known before.

Counted is what the kernel cannot reclaim: neither the arrays of a mapped graph nor those of parts, which are mapped
files too where they are large. What is left grows with nodes, and with edges only up to fixed amounts.
"""

from __future__ import annotations

from dataclasses import dataclass

import scipy.sparse as sp

from harness.errors import InputError
from harness.graphs import Graph, index_dtype, position_dtype
from harness.machine import IN_MEMORY, memory_left, resident
from harness.partition.edge import _transpose as transposition
from harness.partition.edge._assign import node_partitioner
from harness.partition.edge._layout import CLUSTERED_EDGES, Renumber, cluster_nodes
from harness.partition.edge._quality import Quality

_PROGRAM = 192 << 20  # compiled kernels, and heap that the C library keeps
_CLUSTER_BYTES = 32  # for an edge of the part that is clustered: its own, and one of a graph of clusters that grows
_CLUSTER_NODE_BYTES = 64
_COPIED = 64 << 20  # features or labels on their way


@dataclass(frozen=True)
class BuildMemory:
    """Bytes that every step takes at most beside what the process has already; the steps follow one another.

    Attributes:
        before: bytes that the process had when this was computed.
        steps: by name; that of a partitioner is missing where it depends on more than the size of the graph.
        unknown: the partitioner that is missing, or "".
    """

    before: int
    steps: dict[str, int]
    unknown: str = ""

    @property
    def peak(self) -> int:
        """Bytes of the whole process in the step that takes most."""
        return self.before + max(self.steps.values())

    def require(self, name: str, without: str = "") -> None:
        """Raise InputError where this machine, or this process's limit, has less memory left than is needed.

        A step `without` is left out: one that is known better later, and required then.
        """
        steps = {step: size for step, size in self.steps.items() if step != without}
        step, left = max(steps, key=steps.__getitem__), memory_left()
        if left is not None and steps[step] > left:
            raise InputError(
                f"{name}: making its parts takes up to {steps[step] / 2**30:.2f} GiB of memory ({step}), "
                f"{left / 2**30:.2f} GiB are left: end other programs, or use a machine with more"
            )


def build_memory(
    graph: Graph, text: str, num_parts: int, renumber: Renumber, cut: Quality | None = None
) -> BuildMemory:
    """What `partitioned` needs for `graph`, O(P).

    Without `cut` it holds for any assignment, however unbalanced; with the quality of the one that has been made it is
    what making the parts takes. Raises InputError for a text that is no edge-cut partitioner.
    """
    nodes, edges = graph.num_nodes, graph.num_edges
    ids, position = index_dtype(nodes).itemsize, position_dtype(edges).itemsize
    chosen, split = node_partitioner(text), sum(len(s) for s in graph.splits.values() if s is not None)
    owner, order, steps, unknown = 4 * nodes, ids * nodes, dict[str, int](), ""
    if cut is None:
        assignment = chosen.memory(nodes, edges, num_parts) if num_parts > 1 else owner
        steps = {} if assignment is None else {"assignment": assignment}
        unknown = text if assignment is None else ""
        steps["quality"] = owner + order + 4 * nodes
    halos = min(IN_MEMORY, ids * min(edges, (num_parts - 1) * nodes))
    steps["symmetry"] = owner + order + 8 * nodes
    if renumber != 0:
        steps["renumbering"] = owner + order + ids * nodes + _clustering(nodes, edges, num_parts, renumber, cut)
    steps["halos"] = owner + order + halos + (2 * ids + 1) * nodes
    sorting = min(edges, transposition.AT_ONCE) * position + (4 * nodes if edges > transposition.AT_ONCE else 0)
    part = min(IN_MEMORY, 4 * position * edges + 96 * nodes + _rows(graph))
    steps["part"] = owner + order + (ids + 8) * split + halos + part + max(ids * nodes, position * nodes + sorting)
    steps["part"] += min(_COPIED, _rows(graph)) + _sparse_features(graph, num_parts)
    return BuildMemory(resident(), {step: size + _PROGRAM for step, size in steps.items()}, unknown)


def _clustering(nodes: int, edges: int, num_parts: int, renumber: Renumber, cut: Quality | None) -> int:
    """Bytes for the part that takes most to cluster; before the cut is known, of parts of equal size if any is."""
    if cut is None:
        inside = min(edges, CLUSTERED_EDGES) if renumber == "auto" else edges // num_parts
        return _CLUSTER_BYTES * inside + _CLUSTER_NODE_BYTES * nodes
    parts = [(n, e - outside) for n, e, outside in zip(cut.inner, cut.edges, cut.cut, strict=True)]
    sizes = (_CLUSTER_BYTES * e + _CLUSTER_NODE_BYTES * n for n, e in parts if cluster_nodes(renumber, n, e))
    return max(sizes, default=0)


def _rows(graph: Graph) -> int:
    """Bytes of the rows of dense features and of labels in parts."""
    x = 0 if graph.x is None or isinstance(graph.x, sp.csr_matrix) else graph.x.nbytes
    return x + (0 if graph.y is None else graph.y.nbytes * (4 if graph.multilabel else 1))


def _sparse_features(graph: Graph, num_parts: int) -> int:
    """Bytes of a part's rows of sparse features, of parts of equal size."""
    return 2 * 8 * graph.x.nnz // num_parts if isinstance(graph.x, sp.csr_matrix) else 0

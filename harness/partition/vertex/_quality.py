"""Quality of a vertex cut: replicas, balance, and the messages that every device sends inside its host and beyond.

Counts only; the cost of a message depends on model and cluster and is computed elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numba import njit

from harness.errors import InputError
from harness.graphs import Graph
from harness.partition.partitioners import has, put, replica_sets, undirected_pairs
from harness.partition.vertex._masters import masters


@dataclass(frozen=True)
class VertexQuality:
    """Per-part counts of a vertex cut into P parts, and values derived from them.

    replicas: vertices with an edge in the part, and those without any edge whose master it is. edges: undirected, a
    self loop is one. masters: see `masters`; they sum to the number of vertices. inner and outer: messages that the
    part sends in one exchange to parts of its own and of other hosts (CDFGNN, Table 3, prints their largest): one from
    every mirror to its master and one from every master to each of its mirrors.
    """

    replicas: tuple[int, ...]
    edges: tuple[int, ...]
    masters: tuple[int, ...]
    inner: tuple[int, ...]
    outer: tuple[int, ...]

    @property
    def num_parts(self) -> int:
        return len(self.replicas)

    @property
    def num_mirrors(self) -> int:
        """Rows gathered in one exchange, and as many scattered, all parts together."""
        return sum(self.replicas) - sum(self.masters)

    @property
    def replication(self) -> float:
        """Replicas per vertex, the replication factor of CDFGNN, Sec. 6; 1 without a cut."""
        return sum(self.replicas) / max(sum(self.masters), 1)

    @property
    def largest_rows(self) -> int:
        """Rows of the largest tensor that a part needs in one exchange: its replicas, or the messages it sends."""
        sent = (inside + beyond for inside, beyond in zip(self.inner, self.outer, strict=True))
        return max(*self.replicas, *sent)

    @property
    def edge_balance(self) -> float:
        """Largest over mean number of edges: the edge imbalance factor of CDFGNN, Sec. 6."""
        return _peak_to_mean(self.edges)

    @property
    def vertex_balance(self) -> float:
        """Largest over mean number of replicas: the vertex imbalance factor of CDFGNN, Sec. 6."""
        return _peak_to_mean(self.replicas)

    @property
    def master_balance(self) -> float:
        """Largest over mean number of masters."""
        return _peak_to_mean(self.masters)

    def summary(self) -> dict[str, int | float]:
        """The totals by name, for tables and JSON; max_inner and max_outer are Table 3's Inner and Outer."""
        names = ("num_parts", "num_mirrors", "replication", "edge_balance", "vertex_balance", "master_balance")
        messages = {
            "inner": sum(self.inner), "outer": sum(self.outer),
            "max_inner": max(self.inner), "max_outer": max(self.outer),
        }  # fmt: skip
        return {name: getattr(self, name) for name in names} | messages

    def rows(self) -> list[dict[str, int]]:
        """One row of counts per part, for tables and JSON."""
        columns = asdict(self)
        return [
            {"part": part} | {name: column[part] for name, column in columns.items()} for part in range(self.num_parts)
        ]


def vertex_quality(graph: Graph, part: np.ndarray, num_parts: int, hosts: int = 1) -> VertexQuality:
    """The quality of an assignment of `undirected_pairs(graph)`, O(M + N P); parts lie on hosts in equal blocks.

    Raises InputError unless the graph is symmetric, `part` is int [M] in 0..num_parts-1 and `hosts` divides
    `num_parts`.
    """
    u, v = undirected_pairs(graph)
    if part.shape != u.shape or part.dtype.kind not in "iu":
        raise InputError(
            f"graph {graph.name}: parts must be integers [{len(u)}], one per undirected edge, "
            f"not {part.dtype} {list(part.shape)}"
        )
    if len(part) and not 0 <= part.min() <= part.max() < num_parts:
        raise InputError(f"graph {graph.name}: parts must be 0 to {num_parts - 1}, not {part.min()} to {part.max()}")
    if num_parts < 1 or hosts < 1 or num_parts % hosts:
        raise InputError(f"{num_parts} parts cannot be spread evenly over {hosts} hosts; give a divisor of {num_parts}")
    master = masters(u, v, part, graph.num_nodes, num_parts, hosts)
    sets = replica_sets(u, v, part, graph.num_nodes, num_parts)
    replicas, inner, outer = _tally(sets, master, num_parts, num_parts // hosts)
    edges, held = np.bincount(part, minlength=num_parts), np.bincount(master, minlength=num_parts)
    return VertexQuality(*(tuple(counts.tolist()) for counts in (replicas, edges, held, inner, outer)))


def _peak_to_mean(counts: Sequence[int]) -> float:
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0


@njit(cache=True, nogil=True)
def _tally(sets: np.ndarray, master: np.ndarray, num_parts: int, host_size: int) -> np.ndarray:
    """Replicas, inner and outer messages of every part, int64 [3, P]; adds every master to the set of its vertex."""
    counts = np.zeros((3, num_parts), np.int64)
    for node in range(len(master)):
        home = master[node]
        put(sets, node, home)
        for i in range(num_parts):
            if has(sets, node, i):
                counts[0, i] += 1
                if i != home:
                    row = 1 if i // host_size == home // host_size else 2
                    counts[row, i] += 1
                    counts[row, home] += 1
    return counts

"""Quality of an assignment of nodes: halo sizes, cut, balance, replication, rows to send.

Counts only; the cost of a row depends on model and cluster and is computed elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numba import njit

from harness.graphs import Graph, index_dtype
from harness.partition.edge._layout import bucket, check_owner


@dataclass(frozen=True)
class Quality:
    """Per-part counts of a partition into P parts, and values derived from them.

    inner: own nodes. halo: nodes of other parts with an edge into this one (the boundary set of BNS-GCN, Sec. 3.1),
    which is also the rows received in one exchange. sent: rows sent in one exchange. edges: edges into own nodes.
    cut: those among them that come from another part.
    """

    inner: tuple[int, ...]
    halo: tuple[int, ...]
    sent: tuple[int, ...]
    edges: tuple[int, ...]
    cut: tuple[int, ...]

    @property
    def num_parts(self) -> int:
        return len(self.inner)

    @property
    def edge_cut(self) -> int:
        """Directed edges between parts: on a symmetric graph twice the edge cut of METIS."""
        return sum(self.cut)

    @property
    def volume(self) -> int:
        """Rows moved in one exchange, all parts together; METIS's communication volume."""
        return sum(self.halo)

    @property
    def replication(self) -> float:
        """Copies per node, own and halo; 1 without a cut."""
        return (sum(self.inner) + self.volume) / max(sum(self.inner), 1)

    @property
    def largest_rows(self) -> int:
        """Rows of the largest tensor that a part needs in one exchange: its own, its halo, or those it sends."""
        return max(*self.inner, *self.halo, *self.sent)

    @property
    def node_balance(self) -> float:
        """Largest over mean number of inner nodes."""
        return _peak_to_mean(self.inner)

    @property
    def edge_balance(self) -> float:
        """Largest over mean number of edges into a part."""
        return _peak_to_mean(self.edges)

    @property
    def halo_balance(self) -> float:
        """Largest over mean size of a halo."""
        return _peak_to_mean(self.halo)

    def summary(self) -> dict[str, int | float]:
        """The totals by name, for tables and JSON."""
        names = ("num_parts", "edge_cut", "volume", "replication", "node_balance", "edge_balance", "halo_balance")
        largest = {"max_halo": max(self.halo), "mean_halo": self.volume / self.num_parts, "max_sent": max(self.sent)}
        return {name: getattr(self, name) for name in names} | largest

    def rows(self) -> list[dict[str, int]]:
        """One row of counts per part, for tables and JSON."""
        columns = asdict(self)
        return [
            {"part": part} | {name: column[part] for name, column in columns.items()} for part in range(self.num_parts)
        ]


def quality(graph: Graph, owner: np.ndarray, num_parts: int) -> Quality:
    """The quality of an assignment, O(E + N). Raises InputError unless `owner` is int [N] in 0..num_parts-1."""
    check_owner(graph, owner, num_parts)
    inner, order = bucket(owner, num_parts, np.empty(0, index_dtype(graph.num_nodes)))
    counts = _tally(graph.indptr, graph.indices, owner, order, num_parts)
    return Quality(tuple(np.diff(inner).tolist()), *(tuple(row.tolist()) for row in counts))


def _peak_to_mean(counts: Sequence[int]) -> float:
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0


@njit(cache=True, nogil=True)
def _tally(indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray, order: np.ndarray, num_parts: int) -> np.ndarray:
    """Halo, sent, edges and cut of every part, int64 [4, P]; `order` lists the nodes part by part."""
    counts = np.zeros((4, num_parts), np.int64)
    last = np.full(len(owner), -1, np.int32)  # the latest part that counted a node as halo
    for v in order:
        part = owner[v]
        counts[2, part] += indptr[v + 1] - indptr[v]
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if owner[u] != part:
                counts[3, part] += 1
                if last[u] != part:
                    last[u] = part
                    counts[0, part] += 1
                    counts[1, owner[u]] += 1
    return counts


@dataclass(frozen=True)
class OverlapQuality(Quality):
    """The counts of an edge cut whose parts also hold copies of foreign nodes.

    inner to cut: those of the underlying edge cut (`halo`: rows that an exact method would receive in one exchange).
    copies: foreign nodes that the part holds. held: edges among all the nodes it holds. lost: edges into own nodes
    whose source it does not hold.
    """

    copies: tuple[int, ...]
    held: tuple[int, ...]
    lost: tuple[int, ...]

    @property
    def largest_rows(self) -> int:
        held = (own + foreign for own, foreign in zip(self.inner, self.copies, strict=True))
        return max(super().largest_rows, *held)

    @property
    def replication(self) -> float:
        """Copies per node, own and foreign: 1 + O of the paper, if the graph has that many foreign nodes."""
        return 1.0 + sum(self.copies) / max(sum(self.inner), 1)

    @property
    def overhead(self) -> float:
        """Mean foreign nodes of a part per node of the graph: O / M, the first column of the paper's Tables 2 to 4."""
        return (self.replication - 1.0) / self.num_parts

    @property
    def cut_kept(self) -> float:
        """Share of the cut edges into own nodes whose source is held; 1 without a cut."""
        return 1.0 - sum(self.lost) / self.edge_cut if self.edge_cut else 1.0

    def summary(self) -> dict[str, int | float]:
        return super().summary() | {
            "copies": sum(self.copies),
            "overhead": self.overhead,
            "cut_kept": self.cut_kept,
        }

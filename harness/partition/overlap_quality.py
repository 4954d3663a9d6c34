"""What overlapping parts hold beside their own nodes, and what of the edge cut they win back.

Counts only; the nodes are chosen in `harness.partition.overlap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numba import njit

from harness.graph import Graph
from harness.partition.layout import bucket
from harness.partition.quality import Quality


@dataclass(frozen=True)
class OverlapQuality(Quality):
    """The counts of an edge cut whose parts also hold copies of foreign nodes.

    inner to cut: those of the cut underneath (`halo` is what an exact method would receive in one exchange).
    copies: foreign nodes that the part holds. held: edges among all the nodes it holds. lost: edges into own nodes
    whose source it does not hold.
    """

    copies: tuple[int, ...]
    held: tuple[int, ...]
    lost: tuple[int, ...]

    @property
    def replication(self) -> float:
        """Copies per node, own and foreign: 1 + O of the paper, where the graph has that many to give."""
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


def overlap_quality(graph: Graph, owner: np.ndarray, base: Quality, copies: Sequence[np.ndarray]) -> OverlapQuality:
    """The counts of an assignment with quality `base` whose part p also holds the nodes `copies[p]`, O(E + copies)."""
    offsets, order = bucket(owner, base.num_parts, graph.indices)
    holder = np.full(graph.num_nodes, -1, np.int32)
    counts = []
    for part, foreign in enumerate(copies):
        holder[foreign] = part  # a copy of an earlier part is stamped over: parts are counted in turn
        where = (graph.indptr, graph.indices, owner, holder, part)
        from_own, from_copies, lost = _tally(*where, order[offsets[part] : offsets[part + 1]])
        inside, between, _ = _tally(*where, foreign)
        counts.append((len(foreign), from_own + from_copies + inside + between, lost))
    columns = [tuple(int(row[at]) for row in counts) for at in range(3)]
    return OverlapQuality(**asdict(base), copies=columns[0], held=columns[1], lost=columns[2])


@njit(cache=True, nogil=True)
def _tally(
    indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray, holder: np.ndarray, part: int, nodes: np.ndarray
) -> tuple[int, int, int]:
    """Edges into `nodes` from own nodes of the part, from its copies, and from neither."""
    own, copied, rest = 0, 0, 0
    for v in nodes:
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if owner[u] == part:
                own += 1
            elif holder[u] == part:
                copied += 1
            else:
                rest += 1
    return own, copied, rest

"""Quality of overlapping parts: copies, and the cut edges that they restore.

Counts only; the copies are chosen in `_parts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from numba import njit

from harness.graphs import Graph
from harness.partition.edge import OverlapQuality, Quality, bucket


def overlap_quality(graph: Graph, owner: np.ndarray, base: Quality, copies: Sequence[np.ndarray]) -> OverlapQuality:
    """The counts of an assignment with quality `base` whose part p also holds the nodes `copies[p]`, O(E + copies)."""
    offsets, order = bucket(owner, base.num_parts, graph.indices)
    holder = np.full(graph.num_nodes, -1, np.int32)
    counts = []
    for part, foreign in enumerate(copies):
        holder[foreign] = part  # overwrites the mark of an earlier part: parts are counted one after the other
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

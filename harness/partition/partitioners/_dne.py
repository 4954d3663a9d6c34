"""DNE, a vertex cut that grows all parts at the same time (Hanai et al., VLDB 2019).

Written from the paper and from the behaviour of masatoshihanai/DistributedNE. The processes of the original run one
after the other here, so that the result depends only on the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from harness.graphs import Graph
from harness.partition.partitioners._pairs import empty_sets, has, pair_ids, put
from harness.partition.partitioners._partitioner import EdgePartitioner


@dataclass(frozen=True)
class DNE(EdgePartitioner):
    """In every round each part expands the share `expand` of its boundary, and takes the edges of those vertices.

    Expanded are the boundary vertices with the fewest unassigned edges (then the lowest id), or a random vertex where
    the boundary is empty; the other ends of the edges taken join the boundary. Then every unassigned edge of a vertex
    that joined, whose ends share parts, goes to the least loaded of them. When the smallest part has room below the
    mean for everything left, it takes that.

    No part gets more than balance M / P edges (rounded down), or M / P rounded up. The original checks the bound only
    before it expands a batch, with counts of the round before, and can exceed it by far (1.15 to 1.75 in CDFGNN's
    Table 3).

    Options:
        balance: largest over mean number of edges, at least 1; the authors' default.
        expand: share of the boundary expanded in a round, 0 to 1, at least one vertex; the authors' default.
    """

    name = "dne"
    balance: float = 1.01
    expand: float = 0.1

    def validate(self) -> None:
        self._require("balance must be at least 1 and finite", 1 <= self.balance < float("inf"))
        self._require("expand must be 0 to 1", 0 <= self.expand <= 1)

    @property
    def seeded(self) -> bool:
        return True

    def parts(self, graph: Graph, num_parts: int, seed: int, hosts: int) -> np.ndarray:
        ids = pair_ids(graph)
        count = int(ids.max(initial=-1)) + 1
        capacity = max(-(-count // num_parts), int(self.balance * count / num_parts))
        state = _State(
            indptr=graph.indptr, indices=graph.indices, ids=ids, part=np.full(count, -1, np.int32),
            left=graph.in_degree.copy(), sets=empty_sets(graph.num_nodes, num_parts),
            load=np.zeros(num_parts, np.int64),
        )  # fmt: skip
        starts, start = np.random.default_rng(seed).permutation(graph.num_nodes), 0
        boundary = [np.empty(0, graph.indices.dtype)] * num_parts
        while (rest := count - int(state.load.sum())) > 0:
            smallest = int(state.load.argmin())
            if (rest + state.load[smallest]) * num_parts <= count:
                state.part[state.part < 0] = smallest
                break
            joined = []
            for i in np.flatnonzero(state.load < capacity).tolist():
                chosen, boundary[i] = self._choose(boundary[i], state.left)
                if not len(chosen):
                    start = _next_start(starts, start, state.left)
                    chosen = starts[start : start + 1].astype(graph.indices.dtype)
                joined.append(_expand(state, chosen, i, capacity))
                boundary[i] = np.concatenate([boundary[i], joined[-1]])
            _share(state, np.unique(np.concatenate(joined)), capacity)
        return state.part

    def _choose(self, boundary: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The vertices to expand in this order, and the rest of the boundary that still has unassigned edges."""
        alive = boundary[left[boundary] > 0]
        if not len(alive):
            return alive, alive
        count = max(1, int(self.expand * len(alive)))
        key = left[alive] << 32 | alive
        order = np.argpartition(key, count - 1)
        chosen = order[:count]
        return alive[chosen[np.argsort(key[chosen])]], alive[order[count:]]


class _State(NamedTuple):
    """The state shared by all parts. N vertices, M pairs, E entries."""

    indptr: np.ndarray  # int64 [N+1]
    indices: np.ndarray  # [E]
    ids: np.ndarray  # [E] pair of every entry
    part: np.ndarray  # int32 [M], -1 while unassigned
    left: np.ndarray  # int64 [N] unassigned edges of every vertex
    sets: np.ndarray  # uint64 [N, W] parts with a replica
    load: np.ndarray  # int64 [P]


@njit(cache=True, nogil=True)
def _next_start(starts: np.ndarray, start: int, left: np.ndarray) -> int:
    """The position of the first vertex from `start` on with unassigned edges, or the end."""
    while start < len(starts) and left[starts[start]] == 0:
        start += 1
    return start


@njit(cache=True, nogil=True)
def _take(s: _State, e: int, x: int, i: int) -> None:
    """Assign the pair of entry e in the row of x to part i."""
    y = s.indices[e]
    s.part[s.ids[e]] = i
    s.load[i] += 1
    s.left[x] -= 1
    if y != x:
        s.left[y] -= 1


@njit(cache=True, nogil=True)
def _expand(s: _State, chosen: np.ndarray, i: int, capacity: int) -> np.ndarray:
    """Assign the unassigned edges of the chosen vertices to part i until it is full; returns vertices new to it."""
    most = 0
    for x in chosen:
        most += s.left[x]
    joined = np.empty(most, s.indices.dtype)
    count = 0
    for x in chosen:
        for e in range(s.indptr[x], s.indptr[x + 1]):
            if s.part[s.ids[e]] < 0 and s.load[i] < capacity:
                _take(s, e, x, i)
                put(s.sets, x, i)
                y = s.indices[e]
                if put(s.sets, y, i):
                    joined[count] = y
                    count += 1
    return joined[:count].copy()


@njit(cache=True, nogil=True)
def _share(s: _State, joined: np.ndarray, capacity: int) -> None:
    """Assign each unassigned edge of `joined` to the least loaded part that both ends share and that is not full."""
    for x in joined:
        for e in range(s.indptr[x], s.indptr[x + 1]):
            if s.part[s.ids[e]] < 0:
                best = _least_shared(s, x, s.indices[e], capacity)
                if best >= 0:
                    _take(s, e, x, best)


@njit(cache=True, nogil=True)
def _least_shared(s: _State, x: int, y: int, capacity: int) -> int:
    best, lowest = -1, capacity
    for w in range(s.sets.shape[1]):
        if s.sets[x, w] & s.sets[y, w] == np.uint64(0):
            continue
        for i in range(64 * w, min(64 * w + 64, len(s.load))):
            if s.load[i] < lowest and has(s.sets, x, i) and has(s.sets, y, i):
                best, lowest = i, s.load[i]
    return best

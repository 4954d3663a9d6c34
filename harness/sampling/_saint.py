"""GraphSAINT's four samplers of subgraphs, and the counts of pre-sampled subgraphs that its normalisers are made of.

A draw is a set of nodes and a function of its key alone; the subgraph is the one induced on it (`_induced`). All
samplers draw with replacement and merge what was drawn twice (Zeng et al., ICLR 2020; GraphSAINT/GraphSAINT).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.kernels.custom_operator import custom_operator
from harness.kernels.random import GOLDEN, mix64, signed64, stream_of
from harness.kernels.work import Work, bytes_of, declare_work
from harness.sampling._induced import induced_edges

SaintKind = Literal["node", "edge", "rw", "mrw"]
KINDS: tuple[SaintKind, ...] = ("node", "edge", "rw", "mrw")

UNSEEN = 0.1
"""The authors' stand-in for a count of zero, and for a ratio of two zeros."""
LARGEST_RATIO = 1e4
"""The authors' upper limit of a ratio of counts."""

_GOLDEN, _S11, _UNIT = np.uint64(GOLDEN), np.uint64(11), 2.0**-53
_LINE = 64  # bytes of memory that one random access moves


@dataclass(frozen=True)
class SubgraphSampler:
    """One of the four samplers.

    Attributes:
        kind: `node` draws nodes in proportion to their degree; `edge` draws undirected edges in proportion to
            1/d_u + 1/d_v and keeps both ends; `rw` begins uniform random walks at uniform nodes and keeps all nodes
            that they visit; `mrw` keeps a frontier of uniform nodes, of which one, drawn in proportion to its degree,
            is replaced by a uniform neighbour, again and again.
        size: nodes drawn (node, mrw), edges drawn (edge), or walks begun (rw).
        depth: steps of a walk (rw).
        frontier: nodes of the frontier (mrw).
        clip: largest degree that counts in the frontier (mrw); 0 does not limit it.
    """

    kind: SaintKind
    size: int
    depth: int = 0
    frontier: int = 0
    clip: int = 0

    @property
    def budget(self) -> int:
        """Nodes that a draw is counted as, however many are distinct."""
        return self.size * {"node": 1, "edge": 2, "rw": self.depth, "mrw": 1}[self.kind]

    def draw(self, indptr: Tensor, indices: Tensor, key: int, expected: int) -> Tensor:
        """The nodes of a subgraph of a CSR graph, int64 [n], ascending.

        `expected` is their number where tensors have no numbers, and is ignored where they have.
        """
        sizes = [KINDS.index(self.kind), self.size, self.depth, self.frontier, self.clip]
        found: Tensor = torch.ops.haloscope.draw_subgraph(indptr, indices, sizes, signed64(key), expected)
        return found


@dataclass(frozen=True, eq=False)
class SubgraphCounts:
    """In how many of the pre-sampled subgraphs each node and each edge was.

    Attributes:
        subgraphs: their number.
        nodes, edges: int64 [N] and [nnz], the edges in the order of the graph's `indices`.
    """

    subgraphs: int
    nodes: np.ndarray
    edges: np.ndarray

    def edge_ratios(self, indptr: np.ndarray) -> np.ndarray:
        """C_v / C_vu of every edge u -> v, float64 [nnz]: at most `LARGEST_RATIO`, `UNSEEN` where both are zero."""
        own = np.repeat(self.nodes, np.diff(indptr)).astype(np.float64)
        ratios = np.full(len(own), UNSEEN)
        np.divide(own, self.edges, out=ratios, where=self.edges > 0)
        ratios[(self.edges == 0) & (own > 0)] = LARGEST_RATIO
        limited: np.ndarray = np.minimum(ratios, LARGEST_RATIO)
        return limited

    def loss_weights(self) -> np.ndarray:
        """Subgraphs / C_v of every node, float64 [N]; a node that no subgraph held counts as `UNSEEN` of one."""
        weights: np.ndarray = self.subgraphs / np.maximum(self.nodes, UNSEEN)
        return weights


def pre_sample(
    sampler: SubgraphSampler, indptr: np.ndarray, indices: np.ndarray, key_of: Callable[[int], int], nodes: float
) -> SubgraphCounts:
    """Draw subgraphs under key_of(0), key_of(1), ... until they hold more than `nodes` nodes together, and count.

    Without any node in the graph, or any edge that `node` and `edge` could draw, there is no subgraph.
    """
    pointers, columns = torch.from_numpy(indptr), torch.from_numpy(indices)
    in_node, in_edge = np.zeros(len(indptr) - 1, np.int64), np.zeros(len(indices), np.int64)
    held, drawn = 0, 0
    while held <= nodes:
        found = sampler.draw(pointers, columns, key_of(drawn), 0).numpy()
        if not len(found):
            break
        _count(indptr, indices, found, in_node, in_edge)
        held += len(found)
        drawn += 1
    return SubgraphCounts(drawn, in_node, in_edge)


@custom_operator(
    "haloscope::draw_subgraph", "(Tensor indptr, Tensor indices, int[] sizes, int key, int expected) -> Tensor"
)
def draw_subgraph(indptr: Tensor, indices: Tensor, sizes: Sequence[int], key: int, expected: int) -> Tensor:
    """Ascending nodes; `sizes` are the sampler's number in `KINDS`, its size, depth, frontier and clip."""
    pointers, columns, stream = indptr.numpy(), indices.numpy(), stream_of(key)
    kind, size, depth, frontier, clip = sizes
    kept = np.zeros(len(pointers) - 1, np.bool_)
    if len(kept) == 0 or (kind < 2 and len(columns) == 0):
        return torch.empty(0, dtype=torch.int64)
    if kind == 0:
        _nodes(pointers, size, stream, kept)
    elif kind == 1:
        _edges(pointers, columns, np.flatnonzero(np.diff(pointers)), size, stream, kept)
    elif kind == 2:
        _walks(pointers, columns, size, depth, stream, kept)
    else:
        _frontier(pointers, columns, size, frontier, clip, stream, kept)
    return torch.from_numpy(np.flatnonzero(kept))


@draw_subgraph.register_fake
def _(indptr: Tensor, indices: Tensor, sizes: Sequence[int], key: int, expected: int) -> Tensor:
    return indptr.new_empty(expected, dtype=torch.int64)


@dataclass(frozen=True)
class _DrawWork:
    """One random access for every draw, the marks of all nodes, and the frontier's tree of sums."""

    kind: ClassVar[str] = "host"

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        kind, size, depth, frontier, _ = args[2]
        draws = size * {0: 1, 1: 2, 2: 1 + depth}.get(kind, 1 + frontier.bit_length() // 2)
        return Work(self.kind, _LINE * draws + inputs[0].shape[0] + bytes_of(outputs))


declare_work("haloscope::draw_subgraph", _DrawWork())


@njit(cache=True, nogil=True)
def _below(word: np.uint64, count: int) -> int:
    """A uniform number below `count` from the state of a splitmix64 stream, to one part in 2**53 / count."""
    return int(np.float64(mix64(word) >> _S11) * _UNIT * count)


@njit(cache=True, nogil=True)
def _nodes(indptr: np.ndarray, draws: int, stream: np.uint64, kept: np.ndarray) -> None:
    """The row of a uniform entry is a node in proportion to its degree."""
    word, nnz = mix64(stream), indptr[-1]
    for _ in range(draws):
        word += _GOLDEN
        kept[np.searchsorted(indptr, _below(word, nnz), side="right") - 1] = True


@njit(cache=True, nogil=True)
def _edges(
    indptr: np.ndarray, indices: np.ndarray, active: np.ndarray, draws: int, stream: np.uint64, kept: np.ndarray
) -> None:
    """A uniform neighbour of a uniform node with neighbours: {u, v} with probability (1/d_u + 1/d_v) / nodes."""
    word = mix64(stream)
    for _ in range(draws):
        word += _GOLDEN
        v = active[_below(word, len(active))]
        word += _GOLDEN
        kept[v] = True
        kept[indices[indptr[v] + _below(word, indptr[v + 1] - indptr[v])]] = True


@njit(cache=True, nogil=True)
def _walks(
    indptr: np.ndarray, indices: np.ndarray, roots: int, depth: int, stream: np.uint64, kept: np.ndarray
) -> None:
    """Uniform roots and uniform steps; a walk stays where there is no neighbour."""
    word = mix64(stream)
    for _ in range(roots):
        word += _GOLDEN
        v = _below(word, len(kept))
        kept[v] = True
        for _ in range(depth):
            degree = indptr[v + 1] - indptr[v]
            if degree == 0:
                break
            word += _GOLDEN
            v = indices[indptr[v] + _below(word, degree)]
            kept[v] = True


@njit(cache=True, nogil=True)
def _frontier(
    indptr: np.ndarray,
    indices: np.ndarray,
    size: int,
    frontier: int,
    clip: int,
    stream: np.uint64,
    kept: np.ndarray,
) -> None:
    """Multi-dimensional random walk: slots of the frontier are found in a binary tree of sums, O(log frontier) each.

    Leaf i of the tree is entry `leaves + i`, and entry 1 the sum of all.
    """
    word, count = mix64(stream), min(frontier, size)
    leaves = 1
    while leaves < count:
        leaves *= 2
    tree, at = np.zeros(2 * leaves, np.int64), np.empty(count, np.int64)
    for i in range(count):
        word += _GOLDEN
        at[i] = _below(word, len(kept))
        tree[leaves + i] = _weight(indptr, at[i], clip)
    for i in range(leaves - 1, 0, -1):
        tree[i] = tree[2 * i] + tree[2 * i + 1]
    for _ in range(size - count):
        if tree[1] == 0:  # no node of the frontier has a neighbour
            break
        word += _GOLDEN
        rest, i = _below(word, tree[1]), 1
        while i < leaves:
            i *= 2
            if rest >= tree[i]:
                rest -= tree[i]
                i += 1
        v = at[i - leaves]
        word += _GOLDEN
        u = indices[indptr[v] + _below(word, indptr[v + 1] - indptr[v])]
        kept[u] = True
        at[i - leaves] = u
        change = _weight(indptr, u, clip) - tree[i]
        while i > 0:
            tree[i] += change
            i //= 2
    for v in at:
        kept[v] = True


@njit(cache=True, nogil=True)
def _weight(indptr: np.ndarray, v: int, clip: int) -> int:
    degree = int(indptr[v + 1] - indptr[v])
    return min(degree, clip) if clip else degree


@njit(cache=True, nogil=True)
def _count(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, in_node: np.ndarray, in_edge: np.ndarray
) -> None:
    """Add one to every node of a subgraph and to every edge that it induces."""
    for e in induced_edges(indptr, indices, nodes)[2]:
        in_edge[e] += 1
    for v in nodes:
        in_node[v] += 1

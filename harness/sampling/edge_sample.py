"""Neighbour samples drawn once, layer by layer, over a partitioned graph, and who must send what for them.

Which neighbours a node keeps depends on (key, node, neighbour) alone, by global ids: not on the partition. Ranks tell
each other which of the edges between them were kept; everything else each works out itself. Methods decide about
fan-outs and what travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numba import njit

from harness.effects import Counts, Rows
from harness.exchanges.error_feedback import Boundary
from harness.halo import Block, HaloPlan, LocalGraph, Part
from harness.kernels.random import GOLDEN, mix64, stream_of
from harness.rank import Rank

EVERYTHING = np.iinfo(np.int64).max
"""The fan-out that keeps all neighbours."""

_GOLDEN = np.uint64(GOLDEN)


@dataclass(frozen=True, eq=False)
class LayerSample:
    """One layer's sample on one rank.

    Attributes:
        graph: the kept edges into own nodes; halo columns are the halo rows that are read.
        cached: the same with the columns of the full graph's halo, for rows that are there already.
        reverse: the kept edges out of own nodes; halo columns are the foreign nodes that read them.
        forward, backward: who sends which rows, with the edges and against them.
    """

    graph: LocalGraph
    cached: LocalGraph
    reverse: LocalGraph
    forward: Boundary
    backward: Boundary

    def observe(self, rank: Rank, part: Part, layer: int) -> None:
        """Record which shares of the part's edges and halo rows the sample has, for `expected`."""
        rank.observe("sampled own edges", self.cached.own.nnz, part.graph.own.nnz, layer)
        rank.observe("sampled halo edges", self.cached.halo.nnz, part.graph.halo.nnz, layer)
        rank.observe("rows read", self.graph.num_halo, part.graph.num_halo, layer)
        rank.observe("rows reading", self.reverse.num_halo, part.graph.num_halo, layer)

    @classmethod
    def expected(cls, rank: Rank, part: Part, layer: int) -> LayerSample:
        """A sample of shapes only, with the shares that a recorded run observed; the same for every pair of ranks."""
        own = round(part.graph.own.nnz * rank.rate("sampled own edges", layer))
        halo = round(part.graph.halo.nnz * rank.rate("sampled halo edges", layer))
        num_own = part.graph.num_own

        def plan(share: float) -> HaloPlan:
            counts = (np.round(part.plan.send_counts * share), np.round(part.plan.recv_counts * share))
            return HaloPlan.meta(*counts)

        def graph(columns: int) -> LocalGraph:
            degree, halo_degree = part.graph.degree, part.graph.halo_degree.new_empty(columns)
            blocks = Block.meta(num_own, num_own, own), Block.meta(num_own, columns, halo if columns else 0)
            return LocalGraph(*blocks, degree, halo_degree)

        forward, backward = plan(rank.rate("rows read", layer)), plan(rank.rate("rows reading", layer))
        read, reading = int(forward.recv_counts.sum()), int(backward.recv_counts.sum())
        boundaries = Boundary.of(forward, num_own), Boundary.of(backward, num_own)
        return cls(graph(read), graph(part.graph.num_halo), graph(reading), *boundaries)


async def sample_layers(rank: Rank, part: Part, fanouts: Sequence[int], keys: Sequence[int]) -> list[LayerSample]:
    """A sample for every layer, the input's first: at most `fanouts[l]` neighbours of each node that layer l must know.

    The last layer must know the training nodes, every other one what the layer above reads and computes.
    One all-to-all a layer, a byte for every edge between ranks. Needs a symmetric graph.
    """
    needed = np.zeros(len(part.nodes), np.bool_)
    needed[part.train.cpu().numpy()] = True
    sampler, samples = _Sampler(part), list[LayerSample]()
    for fanout, key in reversed(list(zip(fanouts, keys, strict=True))):
        own, halo = sampler.draw(needed, fanout, key)
        told = await sampler.tell(rank, halo)
        samples.append(sampler.layer(own, halo, told, fanout))
        needed = sampler.read(needed, own, told)
    return samples[::-1]


class _Sampler:
    """The arrays of a part's graph on the host, and what is asked of them for every layer."""

    def __init__(self, part: Part) -> None:
        self.part, graph = part, part.graph
        self.own = graph.own.indptr.cpu().numpy(), graph.own.indices.cpu().numpy()
        self.halo = graph.halo.indptr.cpu().numpy(), graph.halo.indices.cpu().numpy()
        self.readers = graph.halo.t_indptr.cpu().numpy(), graph.halo.t_indices.cpu().numpy()
        self.nodes, self.halo_nodes = part.nodes.cpu().numpy(), part.halo_nodes.cpu().numpy()
        self.owner = np.repeat(np.arange(part.num_parts), part.plan.recv_counts)  # of every halo column
        # By owner, and by (row, column) within one: the order in which the owner's transpose lists the same edges.
        self.by_owner = np.argsort(self.owner[self.halo[1]], kind="stable")

    def draw(self, needed: np.ndarray, fanout: int, key: int) -> tuple[np.ndarray, np.ndarray]:
        """Which entries of the own and of the halo block are kept, bool."""
        own, halo = np.zeros(len(self.own[1]), np.bool_), np.zeros(len(self.halo[1]), np.bool_)
        _draw(*self.own, *self.halo, self.nodes, self.halo_nodes, needed, fanout, stream_of(key), own, halo)
        return own, halo

    async def tell(self, rank: Rank, halo: np.ndarray) -> np.ndarray:
        """Which entries of the halo block's transpose their readers kept, bool."""
        send = self._count(self.owner[self.halo[1]])
        recv = self._count(np.repeat(self.owner, np.diff(self.readers[0])))
        bits = torch.from_numpy(halo[self.by_owner].astype(np.uint8)).to(rank.device)
        received = await rank.all_to_all([Rows(bits, send, recv)], label="sample")
        told: np.ndarray = received.tensors[0].cpu().numpy().astype(np.bool_)
        return told

    def read(self, needed: np.ndarray, own: np.ndarray, told: np.ndarray) -> np.ndarray:
        """The own nodes that are needed below a layer: those it computes, and those that somebody reads."""
        below = needed.copy()
        below[self.own[1][own]] = True
        below[self.readers[1][told]] = True
        return below

    def layer(self, own: np.ndarray, halo: np.ndarray, told: np.ndarray, fanout: int) -> LayerSample:
        """The sample of one layer from the masks of its edges."""
        num_own, num_halo, graph = len(self.nodes), len(self.halo_nodes), self.part.graph
        row, column = _rows(self.halo[0])[halo], self.halo[1][halo]  # own node, the halo node it reads
        reader, source = _rows(self.readers[0])[told], self.readers[1][told]  # halo node, the own node it reads
        own_block = Block.from_csr(*_filter(*self.own, own), num_own)
        halo_block = Block.from_csr(*_filter(*self.halo, halo), num_halo)
        turned = Block.from_csr(*_filter(*self.readers, told), num_own)  # [n_halo x n_own]
        reading = _turn(turned)
        read, readers = np.unique(column), np.unique(reader)
        degree = graph.degree.clamp(max=fanout)
        halo_degree = graph.halo_degree.clamp(max=fanout)
        forward = self._plan(source, self.owner[reader], read)
        backward = self._plan(row, self.owner[column], readers)
        device = graph.own.indices.device

        def local(inside: Block, outside: Block, columns: np.ndarray) -> LocalGraph:
            picked = torch.from_numpy(columns)
            outside = outside.select_columns(picked)
            return LocalGraph(inside, outside, degree.cpu(), halo_degree.cpu()[picked]).to(device)

        return LayerSample(
            local(own_block, halo_block, read),
            LocalGraph(own_block, halo_block, degree.cpu(), halo_degree.cpu()).to(device),
            local(_turn(own_block), reading, readers),
            forward,
            backward,
        )

    def _plan(self, row: np.ndarray, rank: np.ndarray, received: np.ndarray) -> Boundary:
        """Each own row once to every rank it goes to, ascending; `received` halo nodes come back."""
        num_own = max(len(self.nodes), 1)
        pairs = np.unique(rank.astype(np.int64) * num_own + row)
        rows = torch.from_numpy(pairs % num_own).to(self.part.plan.send_rows.device)
        plan = HaloPlan(rows, self._count(pairs // num_own), self._count(self.owner[received]))
        return Boundary.of(plan, len(self.nodes))

    def _count(self, ranks: np.ndarray) -> Counts:
        counts: Counts = np.bincount(ranks, minlength=self.part.num_parts).astype(np.int64)
        return counts


def _rows(indptr: np.ndarray) -> np.ndarray:
    """Row of every entry."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def _filter(indptr: np.ndarray, indices: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The CSR arrays of the kept entries."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return before[indptr].astype(indptr.dtype), indices[kept]


def _turn(block: Block) -> Block:
    """The transpose of a block without edge map."""
    return Block(block.t_indptr, block.t_indices, block.indptr, block.indices)


@njit(cache=True, nogil=True)
def _word(start: np.uint64, node: int, again: bool, before: np.uint64) -> np.uint64:
    """The random word of an edge; a repeated one has the word that follows its predecessor's."""
    return mix64(before + _GOLDEN) if again else mix64(start + np.uint64(node) * _GOLDEN)


@njit(cache=True, nogil=True)
def _draw(
    own_indptr: np.ndarray,
    own_indices: np.ndarray,
    halo_indptr: np.ndarray,
    halo_indices: np.ndarray,
    nodes: np.ndarray,
    halo_nodes: np.ndarray,
    needed: np.ndarray,
    fanout: int,
    stream: np.uint64,
    own: np.ndarray,
    halo: np.ndarray,
) -> None:
    """Keep the `fanout` neighbours of every needed row whose random words are smallest: uniform without replacement.

    Repeated edges stand together and count as several neighbours.
    """
    for row in range(len(nodes)):
        if not needed[row]:
            continue
        a, b = own_indptr[row], own_indptr[row + 1]
        c, d = halo_indptr[row], halo_indptr[row + 1]
        if (b - a) + (d - c) <= fanout:
            own[a:b] = True
            halo[c:d] = True
            continue
        start = mix64(stream + np.uint64(nodes[row]) * _GOLDEN)
        words = np.empty((b - a) + (d - c), np.uint64)
        for e in range(a, b):
            again = e > a and own_indices[e] == own_indices[e - 1]
            words[e - a] = _word(start, nodes[own_indices[e]], again, words[e - a - 1])
        for e in range(c, d):
            at, again = b - a + e - c, e > c and halo_indices[e] == halo_indices[e - 1]
            words[at] = _word(start, halo_nodes[halo_indices[e]], again, words[at - 1])
        limit = np.partition(words, fanout - 1)[fanout - 1]
        for e in range(a, b):
            own[e] = words[e - a] <= limit
        for e in range(c, d):
            halo[e] = words[b - a + e - c] <= limit

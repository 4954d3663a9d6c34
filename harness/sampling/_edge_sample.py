"""Neighbour samples drawn once, layer by layer, over a partitioned graph, and the halo plans that they need.

Which neighbours a node keeps depends on (key, node, neighbour) only, by global ids, and not on the partition. Ranks
send each other flags of the kept edges between them; all else is computed locally. Own nodes that no layer needs are
removed and the others renumbered (`Sample.nodes`). Methods choose fan-outs and exchanges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numba import njit

from harness.effects import Counts, Rows
from harness.exchanges import Boundary
from harness.graphs import Block, HaloPlan, LocalGraph, Part
from harness.kernels.random import GOLDEN, mix64, stream_of
from harness.rank import Rank

EVERYTHING = np.iinfo(np.int64).max
"""The fan-out that keeps all neighbours."""

_GOLDEN = np.uint64(GOLDEN)


@dataclass(frozen=True, eq=False)
class LayerSample:
    """One layer's sample on one rank; own rows are those of `Sample.nodes`.

    Attributes:
        graph: the kept edges into own nodes; halo columns are the halo rows that are read.
        read: int64 [graph.num_halo], their rows in the part's halo.
        reverse: the kept edges out of own nodes; halo columns are the foreign nodes that read them.
        reading: int64 [reverse.num_halo], their rows in the part's halo.
        forward, backward: which rows are sent to which ranks, along the edges and against them.
    """

    graph: LocalGraph
    read: torch.Tensor
    reverse: LocalGraph
    reading: torch.Tensor
    forward: Boundary
    backward: Boundary

    def observe(self, rank: Rank, part: Part, layer: int) -> None:
        """Record which shares of the part's edges and halo rows the sample has, for `expected`."""
        rank.observe("sampled own edges", self.graph.own.nnz, part.graph.own.nnz, layer)
        rank.observe("sampled halo edges", self.graph.halo.nnz, part.graph.halo.nnz, layer)
        rank.observe("rows read", self.graph.num_halo, part.graph.num_halo, layer)
        rank.observe("rows reading", self.reverse.num_halo, part.graph.num_halo, layer)

    @classmethod
    def expected(cls, rank: Rank, part: Part, layer: int, num_own: int) -> LayerSample:
        """A sample of shapes only, with the shares that a recorded run observed; the same for every pair of ranks."""
        own = round(part.graph.own.nnz * rank.rate("sampled own edges", layer))
        halo = round(part.graph.halo.nnz * rank.rate("sampled halo edges", layer))

        def plan(share: float) -> HaloPlan:
            counts = (np.round(part.plan.send_counts * share), np.round(part.plan.recv_counts * share))
            return HaloPlan.meta(*counts)

        def graph(columns: int) -> LocalGraph:
            degree, halo_degree = (part.graph.degree.new_empty(count) for count in (num_own, columns))
            blocks = Block.meta(num_own, num_own, own), Block.meta(num_own, columns, halo if columns else 0)
            return LocalGraph(*blocks, degree, halo_degree)

        forward, backward = plan(rank.rate("rows read", layer)), plan(rank.rate("rows reading", layer))
        read, reading = int(forward.recv_counts.sum()), int(backward.recv_counts.sum())
        boundaries = Boundary.of(forward, num_own), Boundary.of(backward, num_own)
        columns = part.halo_nodes.new_empty(read), part.halo_nodes.new_empty(reading)
        return cls(graph(read), columns[0], graph(reading), columns[1], *boundaries)


@dataclass(frozen=True, eq=False)
class Sample:
    """The sample of one rank's part.

    Attributes:
        nodes: int64, ascending rows of the part's own nodes that some layer needs.
        layers: the input's first.
    """

    nodes: torch.Tensor
    layers: tuple[LayerSample, ...]

    def observe(self, rank: Rank, part: Part) -> None:
        """Record which shares of the part the sample has, for `expected`."""
        rank.observe("nodes needed", len(self.nodes), len(part.nodes))
        for l, layer in enumerate(self.layers):
            layer.observe(rank, part, l)

    @classmethod
    def expected(cls, rank: Rank, part: Part, depth: int) -> Sample:
        """A sample of shapes only, with the shares that a recorded run observed."""
        nodes = part.nodes.new_empty(max(round(len(part.nodes) * rank.rate("nodes needed")), len(part.train)))
        return cls(nodes, tuple(LayerSample.expected(rank, part, l, len(nodes)) for l in range(depth)))

    def of(self, part: Part) -> Part:
        """The part of the input layer: needed nodes, the edges kept there, and the halo rows read there."""
        assert part.x is not None and part.y is not None
        first, none = self.layers[0], part.val.new_empty(0)
        train = part.train if part.train.is_meta else torch.searchsorted(self.nodes, part.train)
        x, y = part.x, part.y
        if len(self.nodes) < len(part.nodes):
            x, y = x.index_select(0, self.nodes), y.index_select(0, self.nodes)
        return replace(
            part, nodes=part.nodes[self.nodes], halo_nodes=part.halo_nodes[first.read], graph=first.graph,
            plan=first.forward.plan, x=x, y=y, train=train, val=none, test=none,
        )  # fmt: skip


async def sample_layers(rank: Rank, part: Part, fanouts: Sequence[int], keys: Sequence[int]) -> Sample:
    """A sample for every layer, the input's first: at most `fanouts[l]` neighbours of each node that layer l computes.

    The last layer computes the training nodes, every other one the nodes that the layer above reads and computes.
    One all-to-all a layer, a byte for every edge between ranks. Needs a symmetric graph.
    """
    needed = np.zeros(len(part.nodes), np.bool_)
    needed[part.train.cpu().numpy()] = True
    sampler, drawn = _Sampler(part), list[tuple[np.ndarray, np.ndarray, np.ndarray, int]]()
    for fanout, key in reversed(list(zip(fanouts, keys, strict=True))):
        own, halo = sampler.draw(needed, fanout, key)
        outgoing = await sampler.exchange_kept(rank, halo)
        drawn.append((own, halo, outgoing, fanout))
        needed = sampler.read(needed, own, outgoing)
    nodes = torch.from_numpy(np.flatnonzero(needed)).to(part.nodes.device)
    return Sample(nodes, tuple(sampler.layer(needed, *masks) for masks in reversed(drawn)))


class _Sampler:
    """The arrays of a part's graph on the host, and the steps of drawing a layer from them."""

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
        """Draw the entries to keep of the own and of the halo block: two bool arrays."""
        own, halo = np.zeros(len(self.own[1]), np.bool_), np.zeros(len(self.halo[1]), np.bool_)
        _draw(*self.own, *self.halo, self.nodes, self.halo_nodes, needed, fanout, stream_of(key), own, halo)
        return own, halo

    async def exchange_kept(self, rank: Rank, halo: np.ndarray) -> np.ndarray:
        """Entries of the halo block's transpose that their readers kept, bool."""
        send = self._count(self.owner[self.halo[1]])
        recv = self._count(np.repeat(self.owner, np.diff(self.readers[0])))
        bits = torch.from_numpy(halo[self.by_owner].astype(np.uint8)).to(rank.device)
        received = await rank.all_to_all([Rows(bits, send, recv)], label="sample")
        kept: np.ndarray = received.tensors[0].cpu().numpy().astype(np.bool_)
        return kept

    def read(self, needed: np.ndarray, own: np.ndarray, outgoing: np.ndarray) -> np.ndarray:
        """The own nodes that are needed below a layer: those it computes, and those that own or foreign nodes read."""
        below = needed.copy()
        below[self.own[1][own]] = True
        below[self.readers[1][outgoing]] = True
        return below

    def layer(
        self, needed: np.ndarray, own: np.ndarray, halo: np.ndarray, outgoing: np.ndarray, fanout: int
    ) -> LayerSample:
        """The sample of one layer from the masks of its edges, on the needed nodes."""
        number, graph = np.cumsum(needed) - 1, self.part.graph
        numbered = lambda rows: number[rows].astype(rows.dtype)  # noqa: E731
        column, source = (
            self.halo[1][halo],
            numbered(self.readers[1][outgoing]),
        )  # read there; own nodes, read from there
        reader = _rows(self.readers[0])[outgoing]  # the halo node that reads
        (starts, inside), (halo_starts, _) = _filter(*self.own, own), _filter(*self.halo, halo)
        starts, halo_starts = (np.append(s[:1], s[1:][needed]) for s in (starts, halo_starts))  # others keep no edge
        own_block = Block.from_csr(starts, numbered(inside), int(needed.sum()))
        halo_block = Block.from_csr(halo_starts, column, len(self.halo_nodes))
        turned = Block.from_csr(_filter(*self.readers, outgoing)[0], source, own_block.num_rows)  # [n_halo x needed]
        read, readers = np.unique(column), np.unique(reader)
        degree = graph.degree.cpu()[torch.from_numpy(needed)].clamp(max=fanout)
        halo_degree, device = graph.halo_degree.cpu().clamp(max=fanout), graph.own.indices.device

        def local(inside: Block, outside: Block, columns: np.ndarray) -> LocalGraph:
            picked = torch.from_numpy(columns).long()
            return LocalGraph(inside, outside.select_columns(picked), degree, halo_degree[picked]).to(device)

        return LayerSample(
            local(own_block, halo_block, read),
            torch.from_numpy(read).long().to(device),
            local(_turn(own_block), _turn(turned), readers),
            torch.from_numpy(readers).long().to(device),
            self._plan(source, self.owner[reader], read, own_block.num_rows),
            self._plan(_rows(halo_starts), self.owner[column], readers, own_block.num_rows),
        )

    def _plan(self, row: np.ndarray, rank: np.ndarray, received: np.ndarray, num_own: int) -> Boundary:
        """A plan that sends each own row once to every rank that reads it, ascending, and receives `received` rows."""
        pairs = np.unique(rank.astype(np.int64) * max(num_own, 1) + row)
        rows = torch.from_numpy(pairs % max(num_own, 1)).to(self.part.plan.send_rows.device)
        plan = HaloPlan(rows, self._count(pairs // max(num_own, 1)), self._count(self.owner[received]))
        return Boundary.of(plan, num_own)

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
    """The random word of an edge; a repeated edge has the word that follows its predecessor's."""
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

    Repeated edges are adjacent and count as several neighbours.
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

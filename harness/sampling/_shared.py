"""Samples that every rank draws alike: owners send lists and rows of sampled nodes to all ranks without being asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.effects import Counts, Rows
from harness.graphs import Part
from harness.kernels.custom_operator import custom_operator
from harness.kernels.importance import importance_draw
from harness.kernels.work import declare_work
from harness.nn import Aggregation
from harness.rank import Rank
from harness.sampling._columns import matrix_entries
from harness.sampling._lists import Scattered, addresses, node_of
from harness.sampling._remote import Lists, Neighbours
from harness.sampling._sampled import SampledLayer
from harness.sampling._table import gather_by_number


@dataclass(frozen=True, eq=False)
class SharedNodes:
    """All nodes of the graph by number, as every rank knows them, on the host.

    Attributes:
        owner: int64 [N].
        degree: int32 [N] in-degrees.
        q: float64 [N], in proportion to which nodes are drawn.
    """

    owner: Tensor
    degree: Tensor
    q: Tensor

    @classmethod
    async def of(cls, rank: Rank, part: Part, degree: Tensor, q: Tensor) -> SharedNodes:
        """From the values of own nodes; 20 bytes a node to every other rank."""
        return cls(*await gather_by_number(rank, part, [degree, q], label="degrees and probabilities"))

    def draw(self, rank: Rank, count: int, sampling: str, step: int, layer: int) -> tuple[Tensor, Tensor]:
        """Addresses of the drawn nodes, ascending, and their factors: the same on every rank.

        Records `drawn_columns` of `count`.
        """
        key = rank.key(f"columns/{step}", layer, per_rank=False)
        expected = round(rank.rate("drawn_columns", layer) * count) if self.q.is_meta else 0
        numbers = torch.arange(len(self.q), device=self.q.device)
        places, factors = importance_draw(self.q, numbers, count, sampling, key, expected)
        if places.is_meta:
            return places, factors
        rank.observe("drawn_columns", len(places), count, layer)
        return addresses(places, self.owner.index_select(0, places)), factors

    def layer(
        self,
        rank: Rank,
        aggregation: Aggregation,
        lists: Lists,
        ids: Tensor,
        sources: Tensor,
        drawn: tuple[Tensor, Tensor],
        like: Tensor,
        layer: int,
    ) -> SampledLayer:
        """The layer of the destinations `ids`, whose lists have drawn nodes only, from `sources`, which hold them all.

        `drawn` as returned by `draw`. Records the share of destinations without any entry.
        """
        block, _ = lists.block(rank, sources, len(self.owner), layer)
        columns = node_of(sources)
        above, below = (self.degree.index_select(0, nodes).to(like.device) for nodes in (node_of(ids), columns))
        factor = torch.zeros_like(self.q).index_copy_(0, node_of(drawn[0]), drawn[1]).index_select(0, columns)
        weight = matrix_entries(aggregation, block, above, below, like)
        if not block.indices.is_meta:
            rank.observe("empty_rows", int((block.indptr.diff() == 0).sum()), block.num_rows, layer)
        return SampledLayer(block, weight * factor.to(like.device, like.dtype).index_select(0, block.indices))


@dataclass(frozen=True, eq=False)
class SharedTargets:
    """The nodes whose rows a rank has in a layer: first its batch's, then others of a set that every rank knows.

    Attributes:
        seeds: int64, addresses of the batch, or none where a layer does not need their rows.
        shared: int64, addresses that are the same on every rank.
        kept: bool, which of `shared` are not in the batch.
        rest: `shared[kept]`.
    """

    seeds: Tensor
    shared: Tensor
    kept: Tensor
    rest: Tensor

    @classmethod
    def of(cls, seeds: Tensor) -> SharedTargets:
        """The batch alone."""
        return cls(seeds, seeds[:0], torch.zeros(0, dtype=torch.bool, device=seeds.device), seeds[:0])

    @property
    def ids(self) -> Tensor:
        """All of them, each once."""
        return torch.cat([self.seeds, self.rest])

    def with_drawn(self, rank: Rank, drawn: Tensor, keeps_own: bool, layer: int) -> SharedTargets:
        """The sources of a layer with these targets: with `keeps_own` they stay, and drawn ones follow.

        Records `new_columns` of the drawn, and `kept_columns` of the new.
        """
        if not keeps_own:
            return SharedTargets(self.seeds[:0], drawn, torch.ones_like(drawn, dtype=torch.bool), drawn)
        if drawn.is_meta:
            new = drawn.new_empty(round(rank.rate("new_columns", layer) * len(drawn)))
            kept, rest = (
                torch.empty_like(new, dtype=torch.bool),
                new[: round(rank.rate("kept_columns", layer) * len(new))],
            )
        else:
            new = drawn[~torch.isin(drawn, self.shared)]
            kept = ~torch.isin(new, self.seeds)
            rest = new[kept]
            rank.observe("new_columns", len(new), len(drawn), layer)
            rank.observe("kept_columns", len(rest), len(new), layer)
        joined = [torch.cat(pair) for pair in ((self.shared, new), (self.kept, kept), (self.rest, rest))]
        return SharedTargets(self.seeds, *joined)

    def rows(self, table: Tensor) -> Tensor:
        """The rows of `rest` from those of `shared`."""
        if table.is_meta:
            return table[: len(self.rest)]
        return table if len(self.rest) == len(self.shared) else table[self.kept.to(table.device)]

    async def lists(self, rank: Rank, neighbours: Neighbours, drawn: Tensor, loops: bool, layer: int) -> Lists:
        """In-neighbours of `ids` that are among `drawn`. All ranks call this together, with the same shared nodes."""
        indptr, columns = local_lists(rank, neighbours, self.seeds, drawn, loops, layer)
        if not len(self.shared):
            return Lists(indptr, columns)
        theirs = await shared_lists(rank, neighbours, self.shared, drawn, loops, layer)
        entries = theirs.indptr.diff()
        if entries.is_meta:
            found = theirs.columns[: theirs.columns.shape[0] * len(self.rest) // max(len(self.shared), 1)]
        else:
            found = theirs.columns[torch.repeat_interleave(self.kept, entries)]
        ends = torch.cat([indptr.diff(), self.rows(entries)]).cumsum(0)
        return Lists(torch.nn.functional.pad(ends, (1, 0)), torch.cat([columns, found]))


async def shared_lists(
    rank: Rank, neighbours: Neighbours, ids: Tensor, drawn: Tensor, loops: bool, layer: int
) -> Lists:
    """In-neighbours of `ids` that are among `drawn` (addresses, both the same on every rank).

    `loops`: every node is its own neighbour too. All ranks call this together: an owner sends 4 bytes for each of its
    nodes, and 8 for each entry of their lists, to every other rank, and every pair of ranks 8. Records `shared_nodes`
    and `shared_edges` (what this rank owns).
    """
    order, counts = _by_owner(rank, ids)
    mine = ids.index_select(0, order[: int(counts[rank.index])])
    entries, columns = _among(rank, neighbours, mine, drawn, loops, layer)
    if not ids.is_meta:
        rank.observe("shared_nodes", len(mine), len(ids), layer)
        rank.observe("shared_edges", len(columns), len(mine), layer)
    if rank.size > 1:
        send, expected = _to_others(rank, len(mine)), counts.copy()
        expected[rank.index] = 0
        parts = [
            Rows(_repeated(rank, entries), send, expected),
            Rows(_repeated(rank, columns), _to_others(rank, len(columns)), None),
        ]
        received = await rank.all_to_all(parts, label="sampled edges", layer=layer)
        theirs = [t if t.is_meta else t.cpu() for t in received.tensors]
        entries, columns = torch.cat([entries, theirs[0]]), torch.cat([columns, theirs[1]])
    return Lists(*torch.ops.haloscope.ordered_lists(entries, columns, order))


def local_lists(
    rank: Rank, neighbours: Neighbours, ids: Tensor, drawn: Tensor, loops: bool, layer: int
) -> tuple[Tensor, Tensor]:
    """(indptr, columns) of the same for own nodes, without an exchange. Records `local_edges` for shapes-only runs."""
    entries, columns = _among(rank, neighbours, ids, drawn, loops, layer, "local_edges")
    if not ids.is_meta:
        rank.observe("local_edges", len(columns), len(ids), layer)
    return torch.nn.functional.pad(entries.long().cumsum(0), (1, 0)), columns


async def shared_rows(rank: Rank, neighbours: Neighbours, ids: Tensor, table: Tensor, *, label: str) -> Tensor:
    """Rows of the nodes `ids` (addresses, the same on every rank), in their order, on the device.

    An owner sends its nodes' rows to every other rank, forward at layer 0. Records `shared_rows` (what this rank owns).
    """
    order, counts = _by_owner(rank, ids)
    own = neighbours.local(ids.index_select(0, order[: int(counts[rank.index])])).to(rank.device)
    rows = table.index_select(0, own)
    if not ids.is_meta:
        rank.observe("shared_rows", len(own), len(ids))
    if rank.size > 1:
        expected = counts.copy()
        expected[rank.index] = 0
        part = Rows(_repeated(rank, rows), _to_others(rank, len(own)), expected)
        received = await rank.all_to_all([part], label=label, direction="forward", layer=0)
        rows = torch.cat([rows, received.tensors[0]])
    return torch.empty_like(rows).index_copy_(0, order.to(rank.device), rows)


def _by_owner(rank: Rank, ids: Tensor) -> tuple[Tensor, Counts]:
    """Positions of own ids and then of each other rank's, and how many each rank has (with shapes only, alike)."""
    order, found = torch.ops.haloscope.by_owner(ids, rank.index, rank.size)
    if ids.is_meta:
        counts: Counts = np.diff(np.arange(rank.size + 1) * len(ids) // rank.size)
        return order, counts
    known: Counts = found.numpy().copy()
    return order, known


def _to_others(rank: Rank, count: int) -> Counts:
    """So many rows to every rank but this one."""
    counts: Counts = np.full(rank.size, count, np.int64)
    counts[rank.index] = 0
    return counts


def _repeated(rank: Rank, rows: Tensor) -> Tensor:
    """The rows once for every other rank, on the device."""
    times = [rank.size - 1, *[1] * (rows.ndim - 1)]
    return rows.to(rank.device).repeat(times)


def _among(
    rank: Rank, neighbours: Neighbours, ids: Tensor, drawn: Tensor, loops: bool, layer: int, name: str = "shared_edges"
) -> tuple[Tensor, Tensor]:
    expected = round(rank.rate(name, layer) * len(ids)) if ids.is_meta else 0
    made: tuple[Tensor, Tensor] = torch.ops.haloscope.lists_among(
        neighbours.columns, neighbours.indptr, neighbours.local(ids), ids, drawn, neighbours.num_nodes, loops, expected
    )
    return made


@custom_operator(
    "haloscope::lists_among",
    "(Tensor columns, Tensor indptr, Tensor rows, Tensor ids, Tensor drawn, int num_nodes, bool loops,"
    " int expected) -> (Tensor, Tensor)",
)
def lists_among(
    columns: Tensor,
    indptr: Tensor,
    rows: Tensor,
    ids: Tensor,
    drawn: Tensor,
    num_nodes: int,
    loops: bool,
    expected: int,
) -> tuple[Tensor, Tensor]:
    """(int32 [n] entries of each list, int64 [E] addresses): of the lists `rows`, what is among `drawn`.

    Args:
        columns, indptr: int64, lists of addresses.
        rows, ids: int64 [n], which lists, and the address of the node that each belongs to.
        drawn: int64, distinct addresses of a graph of `num_nodes`.
        loops: whether the node itself, if drawn, follows its list.
        expected: E where tensors have no numbers; ignored where they have.
    """
    marked = np.zeros(num_nodes, np.bool_)
    marked[node_of(drawn).numpy()] = True
    found = _marked(columns.numpy(), indptr.numpy(), rows.numpy(), ids.numpy(), marked, loops)
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])


@lists_among.register_fake
def _(
    columns: Tensor,
    indptr: Tensor,
    rows: Tensor,
    ids: Tensor,
    drawn: Tensor,
    num_nodes: int,
    loops: bool,
    expected: int,
) -> tuple[Tensor, Tensor]:
    return ids.new_empty(ids.shape[0], dtype=torch.int32), ids.new_empty(expected)


declare_work("haloscope::lists_among", Scattered(entries=1))


@njit(cache=True, nogil=True)
def _marked(
    columns: np.ndarray, indptr: np.ndarray, rows: np.ndarray, ids: np.ndarray, marked: np.ndarray, loops: bool
) -> tuple[np.ndarray, np.ndarray]:
    entries = np.zeros(len(rows), np.int32)
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            entries[i] += marked[columns[e] >> 16]
        entries[i] += loops and marked[ids[i] >> 16]
    found, at = np.empty(entries.sum(), np.int64), 0
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            if marked[columns[e] >> 16]:
                found[at] = columns[e]
                at += 1
        if loops and marked[ids[i] >> 16]:
            found[at] = ids[i]
            at += 1
    return entries, found

"""Neighbour lists and rows of any node of a partitioned graph, from the ranks that own them.

Every rank asks for its nodes in the same call: the owners draw from their lists, or return them whole. A part holds the
in-edges of its own nodes only, so this is what a neighbourhood of more than one hop needs. Nodes are known by their
address (`_lists`); which neighbours are drawn depends on (key, node) alone, not on the partition or on who asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.effects import Counts, Direction, Rows
from harness.errors import InputError
from harness.graphs import Block, Part
from harness.rank import Rank
from harness.sampling._edge_sample import EVERYTHING
from harness.sampling._lists import MAX_RANKS, addresses, merge_lists


@dataclass(frozen=True, eq=False)
class Lists:
    """In-neighbours of some nodes: those of node i are `columns[indptr[i]:indptr[i+1]]`, as addresses.

    Full lists ascend by node; a repeated edge is in them as often as in the graph. Drawn ones are in no order.

    Attributes:
        indptr: int64 [n + 1], on the host like all of it.
        columns: int64 [E].
    """

    indptr: Tensor
    columns: Tensor

    def draw(self, rank: Rank, ids: Tensor, fanout: int, key: int, layer: int) -> Lists:
        """At most `fanout` entries of each of these full lists, which are those of the nodes `ids`.

        The same as their owners would draw with this key. Records `drawn_edges`, of nodes x fanout, or of nodes.
        """
        expected = round(rank.rate("drawn_edges", layer) * _most(len(ids), fanout)) if ids.is_meta else 0
        indptr, columns = torch.ops.haloscope.draw_from_lists(self.columns, self.indptr, ids, fanout, key, expected)
        _observe(rank, "drawn_edges", columns, len(ids), fanout, layer)
        return Lists(indptr, columns)

    def block(
        self, rank: Rank, ids: Tensor, num_nodes: int, layer: int, name: str = "sampled_rows"
    ) -> tuple[Block, Tensor]:
        """A block with edge map, one row per list, and the addresses that are in the lists and not in `ids`.

        Its columns are positions in `ids` (int64, distinct, the nodes of the lists or more) followed by the new
        addresses. `num_nodes` counts the whole graph. Records new rows per entry under `name`, for shapes-only runs.
        """
        entries = self.columns.shape[0]
        expected = round(rank.rate(name, layer) * entries) if ids.is_meta else 0
        made = torch.ops.haloscope.list_block(self.columns, self.indptr, ids, num_nodes, expected)
        if not ids.is_meta:
            rank.observe(name, made[5].shape[0], entries, layer)
        return Block(*(array.to(rank.device) for array in made[:5])), made[5]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """One rank's lists, and the exchanges in which ranks ask each other for lists and rows.

    Attributes:
        rank, size: of this rank.
        num_nodes: of the whole graph.
        nodes, rows: int64 [n_own], numbers of the own nodes in the whole graph, ascending, and the local row of each.
        indptr, columns: int64, the list of every local row, ascending. All on the host.
    """

    rank: int
    size: int
    num_nodes: int
    nodes: Tensor
    rows: Tensor
    indptr: Tensor
    columns: Tensor

    @classmethod
    def of(cls, part: Part) -> Neighbours:
        """The lists of a part, O(E). Raises InputError for more ranks than an address can name."""
        if part.num_parts > MAX_RANKS:
            raise InputError(f"sampling names owners in 16 bits: at most {MAX_RANKS} ranks, not {part.num_parts}")
        graph, place = part.graph, (part.rank, part.num_parts, part.totals.num_nodes)
        if part.nodes.is_meta:
            count, entries = graph.num_own, graph.own.nnz + graph.halo.nnz
            sizes = (count, count, count + 1, entries)
            return cls(*place, *(part.nodes.new_empty(size) for size in sizes))
        nodes = part.nodes.cpu()
        owners = torch.from_numpy(np.repeat(np.arange(part.num_parts), part.plan.recv_counts))
        own, halo = ((b.indptr.cpu().numpy(), b.indices.cpu().numpy()) for b in (graph.own, graph.halo))
        named = addresses(nodes, part.rank).numpy(), addresses(part.halo_nodes.cpu(), owners).numpy()
        indptr, columns = merge_lists(*own, *halo, *named)
        ascending, rows = torch.sort(nodes)
        return cls(*place, ascending, rows, torch.from_numpy(indptr), torch.from_numpy(columns))

    def own(self, rows: Tensor) -> Tensor:
        """The addresses of own nodes, given by local row, on the host."""
        if rows.is_meta:
            return torch.empty_like(rows)
        nodes = torch.empty_like(self.nodes)
        nodes[self.rows] = self.nodes
        return addresses(nodes.index_select(0, rows.cpu()), self.rank)

    def local(self, ids: Tensor) -> Tensor:
        """int64 [n] local rows of own nodes, given by address, on the host."""
        found: Tensor = torch.ops.haloscope.own_rows(self.nodes, self.rows, ids)
        return found

    def own_lists(self, rank: Rank, ids: Tensor, fanout: int, key: int, layer: int) -> Lists:
        """The same as `lists` for own nodes only, without an exchange. Records `sampled_edges`."""
        entries, columns = self._draw(rank, ids, fanout, key, layer, "sampled_edges")
        _observe(rank, "sampled_edges", columns, len(ids), fanout, layer)
        indptr = torch.nn.functional.pad(entries.long().cumsum(0), (1, 0))
        return Lists(indptr, columns)

    async def lists(
        self, rank: Rank, ids: Tensor, fanout: int, key: int, layer: int, *, label: str = "neighbours"
    ) -> Lists:
        """At most `fanout` in-neighbours of each of `ids`, uniformly without replacement; EVERYTHING for whole lists.

        All ranks must call this together, each with its own ids (int64 [n], distinct, of any owner). `key` must be the
        same on all ranks. Two all-to-alls of direction `other`: 8 bytes to the owner per remote node; 4, and 8 per
        entry, back; and 16 for every pair of ranks for row counts. One rank sends nothing.

        Records, for shapes-only runs and byte formulas: `remote_nodes` (asked for, of all), `sampled_edges` and
        `remote_edges` (entries of own and of remote nodes, of nodes x fanout, or of nodes): remote ones were often
        reached by an edge, and have more neighbours than own ones.
        """
        if self.size == 1:
            return self.own_lists(rank, ids, fanout, key, layer)
        order, counts = self._split(rank, ids, "remote_nodes", layer)
        named, mine = ids.index_select(0, order), int(counts[self.rank])
        entries, columns = self._draw(rank, named[:mine], fanout, key, layer, "sampled_edges")
        theirs = await self._ask(rank, named[mine:], counts, fanout, key, layer, label)
        _observe(rank, "sampled_edges", columns, mine, fanout, layer)
        _observe(rank, "remote_edges", theirs[1], len(ids) - mine, fanout, layer)
        entries, columns = torch.cat([entries, theirs[0]]), torch.cat([columns, theirs[1]])
        return Lists(*torch.ops.haloscope.ordered_lists(entries, columns, order))

    async def fetch(
        self,
        rank: Rank,
        ids: Tensor,
        tables: Sequence[Tensor],
        *,
        label: str,
        direction: Direction = "forward",
        layer: int = 0,
    ) -> tuple[Tensor, ...]:
        """The rows of `tables` at the nodes `ids` (int64 [n], distinct, of any owner), in their order, on the device.

        Every table has a row for each own node, [n_own, ...], on the rank's device. All ranks call this together. Two
        all-to-alls: 8 bytes to the owner per remote node, its rows back, and 8 for every pair of ranks. Records
        `remote_{label}` (remote of all nodes).
        """
        if self.size == 1:
            rows = self.local(ids).to(rank.device)
            return tuple(table.index_select(0, rows) for table in tables)
        order, counts = self._split(rank, ids, f"remote_{label}", layer)
        named, mine = ids.index_select(0, order), int(counts[self.rank])
        asked, wanted = await self._request(rank, named[mine:], counts, f"{label} wanted", direction, layer)
        rows = self.local(asked).to(rank.device)
        sent, expected = wanted, self._others(counts)
        parts = [Rows(table.index_select(0, rows), sent, expected) for table in tables]
        received = await rank.all_to_all(parts, label=label, direction=direction, layer=layer)
        own, order = self.local(named[:mine]).to(rank.device), order.to(rank.device)
        found = []
        for table, remote in zip(tables, received.tensors, strict=True):
            out = table.new_empty((ids.shape[0], *table.shape[1:]))
            out.index_copy_(0, order[:mine], table.index_select(0, own))
            found.append(out.index_copy_(0, order[mine:], remote))
        return tuple(found)

    async def store(self, rank: Rank, ids: Tensor, rows: Tensor, table: Tensor, *, label: str, layer: int) -> None:
        """Write `rows` [n, d] of the nodes `ids` (int64 [n], distinct, of any owner) into their owners' `table`s.

        Of a node that several ranks send, the owner's own row counts, else that of the highest rank. All ranks call
        this together. One all-to-all of direction `other`: 8 bytes and the row per remote node, and 16 for every pair
        of ranks. Records `remote_{label}` (remote of all nodes).
        """
        if self.size == 1:
            table.index_copy_(0, self.local(ids).to(rank.device), rows)
            return
        order, counts = self._split(rank, ids, f"remote_{label}", layer)
        named, mine, sent = ids.index_select(0, order), int(counts[self.rank]), self._others(counts)
        rows = rows.index_select(0, order.to(rank.device))
        parts = [Rows(named[mine:].to(rank.device), sent, None), Rows(rows[mine:], sent, None)]
        theirs, values = (await rank.all_to_all(parts, label=label, layer=layer)).tensors
        theirs = theirs if theirs.is_meta else theirs.cpu()
        places = self.local(torch.cat([theirs, named[:mine]]))
        last = torch.ops.haloscope.last_of_each(places)
        values = torch.cat([values, rows[:mine]]).index_select(0, last.to(rank.device))
        table.index_copy_(0, places.index_select(0, last).to(rank.device), values)

    def _split(self, rank: Rank, ids: Tensor, name: str, layer: int) -> tuple[Tensor, Counts]:
        """Positions of own ids and then of each other rank's, and how many each rank has."""
        order, found = torch.ops.haloscope.by_owner(ids, self.rank, self.size)
        if not ids.is_meta:
            counts: Counts = found.numpy()
            rank.observe(name, len(ids) - int(counts[self.rank]), len(ids), layer)
            return order, counts
        counts = np.zeros(self.size, np.int64)
        remote, peers = round(rank.rate(name, layer) * len(ids)), np.arange(1, self.size)
        counts[(self.rank + peers) % self.size] = np.diff(np.arange(self.size) * remote // len(peers))
        counts[self.rank] = len(ids) - remote
        return order, counts

    def _others(self, counts: Counts) -> Counts:
        """The counts without this rank's own, which go over no wire."""
        others = counts.copy()
        others[self.rank] = 0
        return others

    def _draw(self, rank: Rank, ids: Tensor, fanout: int, key: int, layer: int, name: str) -> tuple[Tensor, Tensor]:
        """Entries of each list and the lists of own nodes; `name` is that of their recorded rate."""
        expected = round(rank.rate(name, layer) * _most(len(ids), fanout)) if ids.is_meta and len(ids) else 0
        made: tuple[Tensor, Tensor] = torch.ops.haloscope.draw_lists(
            self.columns, self.indptr, self.nodes, self.rows, ids, fanout, key, expected
        )
        return made

    async def _request(
        self, rank: Rank, ids: Tensor, counts: Counts, label: str, direction: Direction, layer: int
    ) -> tuple[Tensor, Counts]:
        """Send ids to their owners; returns those that others sent here, on the host, and how many each rank did."""
        wanted = Rows(ids.to(rank.device), self._others(counts), None)
        received = await rank.all_to_all([wanted], label=label, direction=direction, layer=layer)
        asked = received.tensors[0]
        return asked if asked.is_meta else asked.cpu(), received.counts[0]

    async def _ask(
        self, rank: Rank, ids: Tensor, counts: Counts, fanout: int, key: int, layer: int, label: str
    ) -> tuple[Tensor, Tensor]:
        """Entries of each list and the lists of others' nodes, given by owner."""
        asked, wanted = await self._request(rank, ids, counts, f"{label} wanted", "other", layer)
        entries, columns = self._draw(rank, asked, fanout, key, layer, "remote_edges")
        sizes = self._per_rank(rank, entries, wanted, columns.shape[0])
        parts = [
            Rows(entries.to(rank.device), wanted, self._others(counts)),
            Rows(columns.to(rank.device), sizes, None),
        ]
        received = await rank.all_to_all(parts, label=label, layer=layer)
        first, second = (t if t.is_meta else t.cpu() for t in received.tensors)
        return first, second

    def _per_rank(self, rank: Rank, entries: Tensor, wanted: Counts, total: int) -> Counts:
        """Entries of the lists for each rank, of `wanted` nodes by rank."""
        ends = np.cumsum(wanted)
        if entries.is_meta:
            reached = ends * total // max(int(ends[-1]), 1)
        else:
            reached = np.concatenate([[0], np.cumsum(entries.numpy(), dtype=np.int64)])[ends]
        sizes: Counts = np.diff(reached, prepend=0)
        return sizes


def _most(count: int, fanout: int) -> int:
    """What entries of `count` lists are a share of: those of full fan-outs, or of one each where all are wanted."""
    return count * (1 if fanout == EVERYTHING else fanout)


def _observe(rank: Rank, name: str, columns: Tensor, count: int, fanout: int, layer: int) -> None:
    if not columns.is_meta:
        rank.observe(name, columns.shape[0], _most(count, fanout), layer)

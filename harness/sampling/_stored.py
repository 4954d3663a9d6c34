"""Neighbourhoods that are drawn once and kept: those of a rank's training nodes, and the layers made of them.

Which neighbours a node keeps depends on (key, node) and the fan-out alone, and a smaller fan-out keeps a part of what a
larger one keeps. So a batch has the same edges in every epoch, whatever else is stored, and on any partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.graphs import Block, position_dtype
from harness.kernels.csr import edge_map, transpose
from harness.kernels.custom_operator import custom_operator
from harness.kernels.work import declare_work
from harness.rank import Rank
from harness.sampling._lists import OWNER_BITS, Scattered
from harness.sampling._neighbours import sample_neighbours
from harness.sampling._remote import Neighbours

_OWNER = (1 << OWNER_BITS) - 1


@dataclass(frozen=True, eq=False)
class Reached:
    """Nodes reached from a batch hop by hop, and the lists of all but the last hop's.

    Attributes:
        nodes: int64 [n], positions in `Stored.ids`; the batch itself first.
        indptr, columns: int64, the lists of the first n - (nodes of the last hop), columns by position in `nodes`.
        ends: nodes within 0, 1, ... hops.
    """

    nodes: Tensor
    indptr: Tensor
    columns: Tensor
    ends: tuple[int, ...]

    def block(self, hops: int) -> Block:
        """The edges into the nodes within `hops` hops, from those within one more, with edge map."""
        return first_rows(self.indptr, self.columns, self.ends[hops], self.ends[hops + 1])

    def whole(self) -> Block:
        """All edges among all nodes; those of the last hop have no list."""
        return first_rows(self.indptr, self.columns, self.ends[-1], self.ends[-1])


@dataclass(frozen=True, eq=False)
class Stored:
    """The nodes within some hops of a rank's seeds; all but `rows` on the host.

    Attributes:
        ids: int64 [n], addresses: the seeds, then hop by hop.
        indptr: int64 [hops, m + 1]: the list that each of the m nodes with lists keeps with the fan-out of a hop is
            `columns` from one entry of the hop's row to the next.
        columns: int64, by position in `ids`.
        rows: rows of the tables that were fetched, each [n, ...], on the rank's device.
        asked: bytes of this rank's requests to others and of their replies.
    """

    ids: Tensor
    indptr: Tensor
    columns: Tensor
    rows: tuple[Tensor, ...]
    asked: int

    @classmethod
    async def gather(
        cls, rank: Rank, neighbours: Neighbours, seeds: Tensor, fanouts: Sequence[int], tables: Sequence[Tensor]
    ) -> Stored:
        """Ask owners, hop by hop, for the lists of what was reached last, and at the end for the rows of everything.

        All ranks call this together, each with its own seeds (addresses). `fanouts` must not grow. `tables` have a row
        per own node; the first has the in-degrees, [n_own].
        """
        key = rank.key("stored neighbourhoods", per_rank=False)
        ids, frontier, asked = seeds, seeds, 0
        entries, columns = list[Tensor](), [ids[:0]]
        for hop, fanout in enumerate(fanouts):
            drawn = await neighbours.lists(rank, frontier, fanout, key, hop, label="neighbourhoods")
            made = torch.ops.haloscope.list_block(drawn.columns, drawn.indptr, ids, neighbours.num_nodes, 0)
            remote = (frontier & _OWNER) != rank.index
            asked += 12 * int(remote.sum()) + 8 * int(drawn.indptr.diff()[remote].sum())
            entries.append(drawn.indptr.diff())
            columns.append(made[1].long())
            frontier = made[5]
            ids = torch.cat([ids, frontier])
        rows = await neighbours.fetch(rank, ids, tables, label="stored", direction="other", layer=-1)
        asked += int(((ids & _OWNER) != rank.index).sum()) * (8 + sum(_row_bytes(table) for table in tables))
        whole = torch.nn.functional.pad(torch.cat(entries).cumsum(0), (1, 0)).numpy(), torch.cat(columns).numpy()
        degree = rows[0].cpu().numpy()
        kept = [_kept(*whole, ids.numpy(), degree, fanout, key) for fanout in fanouts]
        begin = np.cumsum([0, *(len(each[1]) for each in kept[:-1])])
        starts = np.stack([each[0] + first for each, first in zip(kept, begin, strict=True)])
        lists = torch.from_numpy(np.concatenate([each[1] for each in kept]))
        return cls(ids, torch.from_numpy(starts), lists, rows, asked)

    @classmethod
    def unknown(cls, like: Tensor, hops: int) -> Stored:
        """Nothing, where tensors have shapes only."""
        none = torch.empty(0, dtype=torch.int64, device=like.device)
        return cls(none, none.new_empty(hops, 1), none, (none, like[:0]), 0)

    def sizes_alone(self, seeds: int) -> tuple[Tensor, Tensor]:
        """Nodes and edges in the neighbourhood of each of the first `seeds` nodes alone, every node once: int64."""
        found = _sizes_alone(self.indptr.numpy(), self.columns.numpy(), len(self.ids), seeds)
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])


def reached(
    stored: Stored, batch: Tensor, merge: bool, rows: Sequence[int] = (), entries: Sequence[int] = ()
) -> Reached:
    """The neighbourhoods of some nodes, int64 [n] distinct positions in `Stored.ids`, on the host.

    Merged, every node is there once, with the list of the first hop at which it is reached; else as often as it is
    reached, as in trees. `rows` are new in each hop, through `entries` of lists, where tensors have no numbers.
    """
    ends = np.cumsum([len(batch), *rows])
    sizes = [int(ends[-1]), int(ends[-1]) - (rows[-1] if rows else 0), sum(entries)]
    found = torch.ops.haloscope.reach(stored.columns, stored.indptr, batch, len(stored.ids), merge, sizes)
    nodes, indptr, columns, counted = found
    return Reached(nodes, indptr, columns, tuple(ends.tolist() if batch.is_meta else counted.tolist()))


def first_rows(indptr: Tensor, columns: Tensor, rows: int, cols: int) -> Block:
    """The block of the first `rows` lists, with edge map; rows beyond the lists are empty."""
    return Block(*torch.ops.haloscope.first_rows(columns, indptr, rows, cols))


@custom_operator(
    "haloscope::reach",
    "(Tensor columns, Tensor indptr, Tensor batch, int num_nodes, bool merge, int[] expected)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def reach(
    columns: Tensor, indptr: Tensor, batch: Tensor, num_nodes: int, merge: bool, expected: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The arrays of `Reached`, its ends as int64 [hops + 1]; `expected` nodes, lists and entries with shapes only."""
    level, nodes, lists, entries = batch.numpy(), [batch.numpy()], list[np.ndarray](), list[np.ndarray]()
    place, count = np.full(num_nodes if merge else 0, -1, np.int64), len(batch)
    if merge:
        place[level] = np.arange(count)
    ends = [count]
    for starts in indptr.numpy():
        sizes, found = _lists_of(starts, columns.numpy(), level)
        if merge:
            level = _number(found, place, count)
            lists.append(place[found])
        else:
            level = found
            lists.append(np.arange(count, count + len(found)))
        entries.append(sizes)
        nodes.append(level)
        count += len(level)
        ends.append(count)
    starts = np.zeros(sum(map(len, entries)) + 1, np.int64)
    np.cumsum(np.concatenate(entries), out=starts[1:])
    arrays = (np.concatenate(nodes), starts, np.concatenate(lists), np.array(ends, np.int64))
    return tuple(torch.from_numpy(array) for array in arrays)  # type: ignore[return-value]


@reach.register_fake
def _(
    columns: Tensor, indptr: Tensor, batch: Tensor, num_nodes: int, merge: bool, expected: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    nodes, lists, entries = expected
    sizes = (nodes, lists + 1, entries, indptr.shape[0] + 1)
    return tuple(batch.new_empty(size) for size in sizes)  # type: ignore[return-value]


declare_work("haloscope::reach", Scattered(entries=2))


@custom_operator(
    "haloscope::first_rows",
    "(Tensor columns, Tensor indptr, int rows, int cols) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def first_rows_arrays(columns: Tensor, indptr: Tensor, rows: int, cols: int) -> tuple[Tensor, ...]:
    """The five arrays of a block of the first `rows` lists, with `cols` columns."""
    starts = indptr.numpy()[: rows + 1]
    kind = np.int32 if position_dtype(int(starts[-1])) == torch.int32 else np.int64
    indices = columns.numpy()[: starts[-1]].astype(kind)
    starts = np.concatenate([starts, np.full(rows + 1 - len(starts), starts[-1])]).astype(kind)
    turned = transpose(starts, indices, cols)
    arrays = (starts, indices, *turned, edge_map(indices, turned[0]))
    return tuple(torch.from_numpy(array) for array in arrays)


@first_rows_arrays.register_fake
def _(columns: Tensor, indptr: Tensor, rows: int, cols: int) -> tuple[Tensor, ...]:
    """Lists are taken to be equally long."""
    lists = max(indptr.shape[0] - 1, 1)
    entries = columns.shape[0] * min(rows, lists) // lists
    kind = position_dtype(entries)
    return tuple(columns.new_empty(size, dtype=kind) for size in (rows + 1, entries, cols + 1, entries, entries))


declare_work("haloscope::first_rows", Scattered(entries=1))


def _row_bytes(table: Tensor) -> int:
    return table.element_size() * int(np.prod(table.shape[1:]))


def _kept(
    indptr: np.ndarray, columns: np.ndarray, ids: np.ndarray, degree: np.ndarray, fanout: int, key: int
) -> tuple[np.ndarray, np.ndarray]:
    """CSR of what every node with a list keeps of it with a fan-out: of a list that was cut already its first entries,
    which were drawn first; of a whole list what its owner would draw."""
    nodes = np.arange(len(indptr) - 1)
    starts, drawn = sample_neighbours(indptr, columns, nodes, fanout, key, ids[nodes] >> OWNER_BITS)
    _first_of_cut(indptr, columns, degree, starts, drawn)
    return starts, drawn


@njit(cache=True, nogil=True)
def _first_of_cut(
    indptr: np.ndarray, columns: np.ndarray, degree: np.ndarray, starts: np.ndarray, drawn: np.ndarray
) -> None:
    for v in range(len(indptr) - 1):
        if indptr[v + 1] - indptr[v] < degree[v]:
            for i in range(starts[v + 1] - starts[v]):
                drawn[starts[v] + i] = columns[indptr[v] + i]


@njit(cache=True, nogil=True)
def _lists_of(starts: np.ndarray, columns: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Entries of each node's list, and the lists one after the other."""
    sizes = np.empty(len(nodes), np.int64)
    for i in range(len(nodes)):
        sizes[i] = starts[nodes[i] + 1] - starts[nodes[i]]
    found, at = np.empty(sizes.sum(), np.int64), 0
    for i in range(len(nodes)):
        for e in range(starts[nodes[i]], starts[nodes[i] + 1]):
            found[at] = columns[e]
            at += 1
    return sizes, found


@njit(cache=True, nogil=True)
def _number(found: np.ndarray, place: np.ndarray, count: int) -> np.ndarray:
    """Number the nodes that have no place yet from `count` on, in the order in which they are found; returns them."""
    new, at = np.empty(len(found), np.int64), 0
    for u in found:
        if place[u] < 0:
            place[u] = count + at
            new[at] = u
            at += 1
    return new[:at].copy()


@njit(cache=True, nogil=True)
def _sizes_alone(indptr: np.ndarray, columns: np.ndarray, num_nodes: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, edges = np.empty(seeds, np.int64), np.empty(seeds, np.int64)
    mark, queue = np.full(num_nodes, -1, np.int64), np.empty(num_nodes, np.int64)
    for seed in range(seeds):
        mark[seed], queue[0] = seed, seed
        begin, end, held = 0, 1, 0
        for hop in range(len(indptr)):
            last = end
            for i in range(begin, last):
                v = queue[i]
                for e in range(indptr[hop, v], indptr[hop, v + 1]):
                    u = columns[e]
                    held += 1
                    if mark[u] != seed:
                        mark[u] = seed
                        queue[end] = u
                        end += 1
            begin = last
        nodes[seed], edges[seed] = end, held
    return nodes, edges
